// Tensors from values of the program, and over its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <vector>

#include "mytorch/std_function.h"
#include "mytorch/tensor.h"
#include "mytorch/tensor_options.h"

namespace mytorch {

// A number, or a list of literals: 1, {1, 2, 3}, {{1.5, 2}, {3, 4}}. Valid until the end of the
// full expression that creates it.
class Literal {
 public:
  Literal() = default;  // an empty list
  template <detail::AnyNumber T>
  Literal(T number) : Literal(Scalar(number)) {}                        // NOLINT
  Literal(const Scalar& number) : is_number_(true), number_(number) {}  // NOLINT
  Literal(std::initializer_list<Literal> list) {                        // NOLINT
    list_ = list.begin();
    size_ = list.size();
  }
  Literal(const Tensor&) = delete;  // use clone(), cat or stack

  bool is_number() const { return is_number_; }
  const Scalar& number() const { return number_; }
  size_t size() const { return size_; }
  const Literal& operator[](size_t i) const { return list_[i]; }

 private:
  bool is_number_ = false;
  Scalar number_;
  const Literal* list_ = nullptr;
  size_t size_ = 0;
};

// Returns a tensor of the values: of no dimension for a number, else of a dimension for each level
// of braces. Without a dtype it is bool for bools, int64 for integers, float32, the default float
// type, if any value is a floating-point number, and complex64 if any is complex. Throws
// Error(kShape) if lists that must be equally long are not, and Error(kValue) for an integer that
// the dtype cannot represent.
Tensor tensor(const Literal& values, const TensorOptions& options = {});

namespace detail {
template <class T>
concept Element = AnyNumber<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <class R>
concept Elements = requires(const R& range) {
  requires Element<std::remove_cvref_t<decltype(*range.data())>>;
  range.size();
};
Tensor copy_of_elements(const void* data, size_t size, ScalarType type,
                        const TensorOptions& options);
Tensor copy_of_bools(const std::vector<bool>& values, const TensorOptions& options);
using Deleter = std::function<void(void*)>;
Tensor wrap_memory(const void* data, bool read_only, std::optional<ScalarType> type, IntList sizes,
                   OptionalIntList strides, Deleter deleter, const TensorOptions& options);
// The element type of memory; absent for bytes of anything.
template <class T>
constexpr std::optional<ScalarType> memory_type() {
  using Value = std::remove_const_t<T>;
  if constexpr (Element<Value> && !std::is_same_v<Value, char>) {
    return scalar_type_of<Value>();
  } else {
    return {};
  }
}
}  // namespace detail

// Returns a 1-dim tensor with a copy of the elements of a std::vector, std::span, std::array or the
// like. Without a dtype, integers become int64, doubles float32, and complex doubles complex64.
template <detail::Elements R>
Tensor tensor(const R& values, const TensorOptions& options = {}) {
  return detail::copy_of_elements(values.data(), values.size(),
                                  scalar_type_of<std::remove_cvref_t<decltype(*values.data())>>(),
                                  options);
}
// A template, so that it does not compete for lists in braces.
template <class R>
requires(std::is_same_v<R, std::vector<bool>>) Tensor
    tensor(const R& values, const TensorOptions& options = {}) {
  return detail::copy_of_bools(values, options);
}

Tensor scalar_tensor(const Scalar& value, std::optional<ScalarType> dtype = {},
                     Device device = kCPU);
template <detail::Options O>
Tensor scalar_tensor(const Scalar& value, const O& options) {
  const TensorOptions o = options;
  return o.finish(scalar_tensor(value, o.dtype_opt(), o.device()));
}

// Wraps the caller's memory, row-major unless strides (in elements) are given. The memory must
// outlive the tensor; `deleter`, if given, is called with it when the last tensor that shares it is
// destroyed. The dtype is that of the pointer; memory of void, char or std::byte has the dtype of
// the options (float32 if none). Writes to a tensor over `const` memory throw Error(kValue). The
// device of the memory is that of the options.
template <class T>
Tensor from_blob(T* data, IntList sizes, const TensorOptions& options = {}) {
  return detail::wrap_memory(data, std::is_const_v<T>, detail::memory_type<T>(), sizes, {}, nullptr,
                             options);
}
template <class T>
Tensor from_blob(T* data, IntList sizes, IntList strides, const TensorOptions& options = {}) {
  return detail::wrap_memory(data, std::is_const_v<T>, detail::memory_type<T>(), sizes, strides,
                             nullptr, options);
}
template <class T>
Tensor from_blob(T* data, IntList sizes, detail::Deleter deleter,
                 const TensorOptions& options = {}) {
  return detail::wrap_memory(data, std::is_const_v<T>, detail::memory_type<T>(), sizes, {},
                             std::move(deleter), options);
}
template <class T>
Tensor from_blob(T* data, IntList sizes, IntList strides, detail::Deleter deleter,
                 const TensorOptions& options = {}) {
  return detail::wrap_memory(data, std::is_const_v<T>, detail::memory_type<T>(), sizes, strides,
                             std::move(deleter), options);
}

}  // namespace mytorch
