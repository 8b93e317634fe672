// C++ views of operands and other arguments of kernels. They own no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "mytorch/abi.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/sizes.h"

namespace mytorch::sdk {
inline namespace v1 {

// A view of an operand. The view of an absent operand (NULL) is false.
class TensorView {
 public:
  TensorView() = default;
  TensorView(const mt_tensor* tensor) : tensor_(tensor) {}  // NOLINT: an implicit conversion

  explicit operator bool() const { return tensor_ != nullptr; }
  const mt_tensor* get() const { return tensor_; }

  int ndim() const { return tensor_->dl.ndim; }
  std::span<const int64_t> shape() const {
    return {tensor_->dl.shape, static_cast<size_t>(tensor_->dl.ndim)};
  }
  std::span<const int64_t> strides() const {  // in elements
    return {tensor_->dl.strides, static_cast<size_t>(tensor_->dl.ndim)};
  }
  // Negative dimensions count from the end.
  int64_t size(int dim) const { return tensor_->dl.shape[dim < 0 ? dim + ndim() : dim]; }
  int64_t stride(int dim) const { return tensor_->dl.strides[dim < 0 ? dim + ndim() : dim]; }
  int64_t numel() const { return product(shape()); }

  mt_dtype dtype() const { return tensor_->dl.dtype; }
  template <class T>
  bool is() const {
    return is_dtype<T>(dtype());
  }
  int64_t itemsize() const { return v1::itemsize(dtype()); }

  void* raw() const { return static_cast<char*>(tensor_->dl.data) + tensor_->dl.byte_offset; }
  // Unchecked: T is the type of dtype() or, in kernels that only move bytes, has its size.
  template <class T>
  T* data() const {
    return static_cast<T*>(raw());
  }

  bool is_host() const { return (tensor_->flags & MT_TENSOR_HOST) != 0; }
  bool is_cpu() const { return tensor_->dl.device.type == MT_DEVICE_CPU; }

  // Returns whether the elements are contiguous in row-major order. Strides of dimensions of size
  // 1, and of empty tensors, do not matter.
  bool is_contiguous() const {
    if ((tensor_->flags & MT_TENSOR_CONTIGUOUS) != 0) return true;
    int64_t expected = 1;
    bool contiguous = true;
    for (int d = ndim() - 1; d >= 0; --d) {
      if (size(d) == 0) return true;
      if (size(d) != 1 && stride(d) != expected) contiguous = false;
      expected = wrapping_mul(expected, size(d));
    }
    return contiguous;
  }

 private:
  const mt_tensor* tensor_ = nullptr;
};

inline std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

inline bool same_shape(const TensorView& a, const TensorView& b) {
  if (a.ndim() != b.ndim()) return false;
  for (int d = 0; d < a.ndim(); ++d) {
    if (a.size(d) != b.size(d)) return false;
  }
  return true;
}

// ---- numbers ----

// Returns the number of a Scalar argument, or `absent` if there is none.
template <class T>
T to(const mt_scalar& scalar, T absent = T()) {
  switch (scalar.kind) {
    case MT_SCALAR_FLOAT:
      return convert<T>(scalar.v.d);
    case MT_SCALAR_INT:
      return convert<T>(scalar.v.i);
    case MT_SCALAR_BOOL:
      return convert<T>(scalar.v.i != 0);
    default:
      return absent;
  }
}

// Returns the element of a 0-dim operand in host memory: one with MT_TENSOR_HOST, or any operand on
// the CPU.
template <class T>
T scalar_value(const mt_tensor* tensor) {
  return visit_dtype(tensor->dl.dtype, [&](auto tag) {
    using From = typename decltype(tag)::type;
    return convert<T>(*TensorView(tensor).data<const From>());
  });
}

inline std::optional<int64_t> to_optional(const mt_optional_int& value) {
  return value.present != 0 ? std::optional<int64_t>(value.value) : std::nullopt;
}
inline std::optional<double> to_optional(const mt_optional_float& value) {
  return value.present != 0 ? std::optional<double>(value.value) : std::nullopt;
}
inline std::span<const int64_t> to_span(const mt_int_list& list) {
  return {list.data, static_cast<size_t>(list.size)};
}
inline std::span<const double> to_span(const mt_float_list& list) {
  return {list.data, static_cast<size_t>(list.size)};
}

// Returns the product of the list's numbers, modulo 2^64.
inline int64_t product(const mt_int_list& list) { return product(to_span(list)); }

// Returns gradient i of a call, or NULL if the call's output_mask does not request it.
inline const mt_tensor* wanted(const mt_int_list& mask, int64_t i, const mt_tensor* gradient) {
  return mask.size <= i || mask.data[i] != 0 ? gradient : nullptr;
}

// ---- fields of argument structs, by offset ----

template <class T>
T field_at(const void* args, uint32_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(args) + offset, sizeof(T));
  return value;
}

inline const mt_tensor* tensor_at(const void* args, uint32_t offset) {
  return field_at<const mt_tensor*>(args, offset);
}

// Returns the value of a "scalar" node.
template <class T>
T scalar_at(const void* args, const mt_node& node) {
  switch (node.field) {
    case MT_FIELD_INT:
      return convert<T>(field_at<int64_t>(args, node.offset));
    case MT_FIELD_FLOAT:
      return convert<T>(field_at<double>(args, node.offset));
    default:
      return to<T>(field_at<mt_scalar>(args, node.offset));
  }
}

// Returns that value as a complex number, Z(real, imaginary).
template <class Z>
Z complex_scalar_at(const void* args, const mt_node& node) {
  if (node.field == MT_FIELD_SCALAR) {
    const auto scalar = field_at<mt_scalar>(args, node.offset);
    if (scalar.kind == MT_SCALAR_COMPLEX) return Z(scalar.v.z[0], scalar.v.z[1]);
  }
  return Z(scalar_at<double>(args, node), 0);
}

}  // namespace v1
}  // namespace mytorch::sdk
