// The elements of an operand in row-major order.
#pragma once

#include <cstdint>
#include <span>

#include "mytorch/backend/iterate.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {

class Elements {
 public:
  explicit Elements(const sdk::TensorView& tensor) : Elements(tensor, tensor.shape()) {}
  // Reads the tensor as if it had `shape`, to which it broadcasts.
  Elements(const sdk::TensorView& tensor, std::span<const int64_t> shape)
      : base_(static_cast<char*>(tensor.raw())),
        loop_(sdk::make_loop<1>(shape, {tensor}, sdk::Order::kRowMajor)) {
    loop_.scale(0, tensor.itemsize());
  }
  // Reads the tensor as if it had `shape` and `strides`, in elements.
  Elements(const sdk::TensorView& tensor, std::span<const int64_t> shape, const int64_t* strides)
      : base_(static_cast<char*>(tensor.raw())), loop_(shape, {strides}, sdk::Order::kRowMajor) {
    loop_.scale(0, tensor.itemsize());
  }

  int64_t count() const { return loop_.numel(); }
  // Return an element's offset in bytes, and its address.
  int64_t offset(int64_t index) const {
    int64_t at[1];
    loop_.offsets(index, at);
    return at[0];
  }
  void* operator[](int64_t index) const { return base_ + offset(index); }

 private:
  char* base_;
  sdk::StridedLoop<1> loop_;
};

}  // namespace mytorch::reference
