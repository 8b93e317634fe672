// The key of a plan: everything that the primitive depends on, as words.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "mytorch/backend.h"

namespace mytorch::onednn {

class Key {
 public:
  // `kind` distinguishes operators: the hash of the operator's schema.
  explicit Key(uint64_t kind, std::initializer_list<const mt_tensor*> operands = {}) {
    number(static_cast<int64_t>(kind));
    for (const mt_tensor* operand : operands) tensor(operand);
  }

  void number(int64_t value) {
    // No call reaches this limit: operands have at most 5 dimensions here.
    if (size_ == words_.size()) throw sdk::Declined{};
    words_[size_++] = value;
  }
  void number(double value) { number(std::bit_cast<int64_t>(value)); }
  void numbers(const mt_int_list& list) {
    number(list.size);
    for (int64_t i = 0; i < list.size; ++i) number(list.data[i]);
  }
  // Adds the tensor's type, shape and strides, but not its address.
  void tensor(const mt_tensor* tensor) {
    if (tensor == nullptr) return number(int64_t{-1});
    const mt_dltensor& t = tensor->dl;
    number(int64_t{t.ndim} << 32 | sdk::dtype_key(t.dtype));
    for (int d = 0; d < t.ndim; ++d) {
      number(t.shape[d]);
      number(t.shape[d] == 1 ? 0 : t.strides[d]);  // the stride of a size of 1 is never used
    }
  }

  uint64_t hash() const {
    uint64_t h = size_;
    for (size_t i = 0; i < size_; ++i) {
      h = (h ^ static_cast<uint64_t>(words_[i])) * 0x9E3779B97F4A7C15u;
      h ^= h >> 32;
    }
    return h;
  }
  friend bool operator==(const Key& a, const Key& b) {
    return a.size_ == b.size_ &&
           std::equal(a.words_.begin(), a.words_.begin() + a.size_, b.words_.begin());
  }

 private:
  size_t size_ = 0;
  std::array<int64_t, 96> words_;
};

}  // namespace mytorch::onednn
