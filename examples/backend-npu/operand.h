// Operands of queued work. The arguments of a kernel live in its caller's frame and end when the
// kernel returns, so queued work holds copies of shapes, strides and scalars, and pointers to
// device memory.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "chip.h"
#include "mytorch/backend.h"

namespace npu {

namespace sdk = mytorch::sdk;

using Sizes = std::vector<int64_t>;

inline int64_t product(const Sizes& sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

struct Operand {
  Operand() = default;
  Operand(const mt_tensor* given) {  // NOLINT: operands are meant to convert
    if (given == nullptr) return;
    const sdk::TensorView tensor = given;
    present = true;
    is_number = given->storage == nullptr;
    dtype = tensor.dtype();
    shape.assign(tensor.shape().begin(), tensor.shape().end());
    strides.assign(tensor.strides().begin(), tensor.strides().end());
    if (tensor.is_host()) {
      is_host = true;
      std::memcpy(number.data(), tensor.raw(), static_cast<size_t>(tensor.itemsize()));
    } else {
      memory_ = memory().view(tensor.raw());
    }
  }
  char* data() { return is_host ? number.data() : memory_; }
  const char* data() const { return is_host ? number.data() : memory_; }
  int64_t numel() const { return product(shape); }
  int64_t size(int dim) const {
    return shape[static_cast<size_t>(dim < 0 ? dim + static_cast<int>(shape.size()) : dim)];
  }
  // Returns the strides for reading the operand broadcast to a larger shape.
  Sizes strides_in(const Sizes& larger) const {
    Sizes result(larger.size(), 0);
    const size_t missing = larger.size() - shape.size();
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] != 1 || larger[missing + d] == 1) result[missing + d] = strides[d];
    }
    return result;
  }

  bool present = false;
  bool is_host = false;
  bool is_number = false;  // of the caller's, and no element of a tensor
  mt_dtype dtype{};
  Sizes shape;
  Sizes strides;

 private:
  std::array<char, 16> number{};
  char* memory_ = nullptr;
};

// Queues work on the context's stream.
inline void launch(mt_ctx& ctx, std::function<void()> work) {
  static_cast<Stream*>(ctx.stream)->queue(std::move(work));
}

// Steps through a shape in row-major order, with one offset in elements for each of `strides`.
class Odometer {
 public:
  Odometer(Sizes shape, std::vector<Sizes> strides)
      : shape_(std::move(shape)),
        strides_(std::move(strides)),
        index_(shape_.size(), 0),
        offsets_(strides_.size(), 0) {}
  int64_t offset(size_t operand) const { return offsets_[operand]; }
  const Sizes& index() const { return index_; }
  void next() {
    for (size_t d = shape_.size(); d-- > 0;) {
      const bool more = ++index_[d] < shape_[d];
      for (size_t k = 0; k < offsets_.size(); ++k) {
        offsets_[k] += more ? strides_[k][d] : -strides_[k][d] * (shape_[d] - 1);
      }
      if (more) return;
      index_[d] = 0;
    }
  }

 private:
  Sizes shape_;
  std::vector<Sizes> strides_;
  Sizes index_;
  std::vector<int64_t> offsets_;
};

// Calls f with a zero of the type in which the chip computes: double, or int64 for integers and
// bools. Stores convert to the operand's type.
template <class F>
void visit_domain(mt_dtype dtype, F&& f) {
  if (sdk::is_floating(dtype)) return f(double{});
  f(int64_t{});
}

// Integers wrap around. Signed overflow would be undefined, so these compute in uint64.
inline double plus(double a, double b) { return a + b; }
inline double times(double a, double b) { return a * b; }
inline int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// Returns the elements of an operand, broadcast to `shape`, in row-major order.
template <class E>
std::vector<E> read(const Operand& from, const Sizes& shape) {
  std::vector<E> values(static_cast<size_t>(product(shape)));
  sdk::visit_dtype(from.dtype, [&](auto tag) {
    const auto* data = reinterpret_cast<const typename decltype(tag)::type*>(from.data());
    Odometer at(shape, {from.strides_in(shape)});
    for (E& value : values) {
      value = sdk::convert<E>(data[at.offset(0)]);
      at.next();
    }
  });
  return values;
}
template <class E>
std::vector<E> read(const Operand& from) {
  return read<E>(from, from.shape);
}

template <class E>
void write(const std::vector<E>& values, Operand& to) {
  sdk::visit_dtype(to.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* data = reinterpret_cast<T*>(to.data());
    Odometer at(to.shape, {to.strides});
    for (const E value : values) {
      data[at.offset(0)] = sdk::convert<T>(value);
      at.next();
    }
  });
}

}  // namespace npu
