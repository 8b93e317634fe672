// The tensor: a reference-counted n-dimensional array on a device.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/error.h"
#include "mytorch/generator.h"
#include "mytorch/list.h"
#include "mytorch/scalar.h"
#include "mytorch/tensor_impl.h"

namespace mytorch {

class Tensor;
namespace indexing {
class TensorIndex;
}

// An argument that is a Tensor, a number, or absent (the default). A number takes part in promotion
// by category only, and is passed to kernels as a 0-dim operand on the caller's stack, so it costs
// no allocation. An Operand does not own the tensor that it refers to.
class Operand {
 public:
  constexpr Operand() noexcept = default;
  Operand(const Tensor& tensor);                            // NOLINT
  Operand(const Scalar& scalar) : scalar_(scalar.abi()) {}  // NOLINT
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Operand(T value) : Operand(Scalar(value)) {}  // NOLINT

  bool present() const { return is_tensor() || is_scalar(); }
  bool is_tensor() const { return impl_ != nullptr; }
  bool is_scalar() const { return scalar_.kind != MT_SCALAR_NONE; }
  TensorImpl* impl() const { return impl_; }
  Tensor tensor() const;
  Scalar scalar() const { return Scalar(scalar_); }
  uint32_t layer_flags() const { return impl_ != nullptr ? mytorch::layer_flags(impl_) : 0; }

 private:
  TensorImpl* impl_ = nullptr;
  mt_scalar scalar_{};  // MT_SCALAR_NONE beside a tensor
};

// A reference to an array; copies share the array. A default-constructed Tensor is undefined: as an
// argument it means "absent", and any use other than defined() and assignment throws Error(kValue).
//
// Assignment to a variable makes it refer to another array. Assignment to a temporary, such as an
// element, writes into its array: `x[0] = row`, `x[i][j] = 3.0`.
//
// Every operator of ops.yaml is a free function with a header of its own, mytorch/ops/NAME.h. Some
// are also declared below as methods; `x.method()` is the same as `method(x)`.
class Tensor {
 public:
  Tensor() noexcept : impl_(nullptr) {}
  Tensor(const Tensor& other) : impl_(other.impl_) {
    if (impl_ != nullptr) detail::retain(impl_);
  }
  Tensor(Tensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  Tensor& operator=(const Tensor& other) & {
    Tensor copy(other);
    std::swap(impl_, copy.impl_);
    return *this;
  }
  Tensor& operator=(Tensor&& other) & noexcept {
    std::swap(impl_, other.impl_);
    return *this;
  }
  template <detail::Number NotATensor>
  Tensor& operator=(NotATensor) & = delete;  // use fill_(value), or scalar_tensor(value)
  // Copy the values, which broadcast, into this tensor's array. Throw Error(kValue) if nothing else
  // refers to the array, because the values would be lost: indices with tensors make a copy.
  Tensor& operator=(const Tensor& values) &&;
  Tensor& operator=(const Scalar& value) &&;
  ~Tensor() { release(impl_); }

  // Takes over one reference to `impl`.
  static Tensor adopt(TensorImpl* impl) {
    Tensor tensor;
    tensor.impl_ = impl;
    return tensor;
  }
  static Tensor share(TensorImpl* impl) {
    if (impl != nullptr) detail::retain(impl);
    return adopt(impl);
  }

  bool defined() const { return impl_ != nullptr; }
  TensorImpl* impl() const { return impl_; }
  TensorImpl* operator->() const = delete;
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

  // -- shape, type and device --
  int64_t dim() const { return checked()->abi.dl.ndim; }
  IntList sizes() const { return checked()->sizes(); }
  IntList strides() const { return checked()->strides(); }  // in elements
  // Negative dimensions count from the end. Throws Error(kShape) if out of range.
  int64_t size(int64_t dim) const;
  int64_t stride(int64_t dim) const;
  int64_t numel() const { return checked()->numel; }
  ScalarType dtype() const { return checked()->dtype; }
  Device device() const { return checked()->device(); }
  bool is_contiguous() const { return checked()->contiguous(); }
  bool is_view() const { return checked()->base != nullptr; }
  bool is_floating_point() const { return mytorch::is_floating_point(dtype()); }
  int64_t storage_offset() const { return checked()->offset(); }
  int64_t element_size() const { return mytorch::element_size(dtype()); }
  // Returns how many times operators have written the memory; shared by all views.
  uint64_t version() const { return checked()->storage->abi.version; }
  std::string str() const;  // values and type, as printed by `operator<<`

  // -- memory --
  // Returns a pointer to the first element; strides apply. Throws Error(kType) if T does not match
  // dtype(). The mutable form marks the storage as escaped: writes can no longer be counted, so
  // nothing derived from its contents is cached from then on.
  template <class T>
  const T* const_data() const {
    return static_cast<const T*>(const_data_checked(scalar_type_of<T>()));
  }
  template <class T>
  T* data() const {
    return static_cast<T*>(data_checked(scalar_type_of<T>()));
  }
  const void* raw_data() const { return checked()->abi.dl.data; }
  void* raw_mutable_data() const;
  // Returns the value of a one-element tensor. Throws Error(kShape) for other tensors.
  Scalar item() const;
  template <class T>
  T item() const {
    if constexpr (std::is_same_v<T, bool>)
      return item().to_bool();
    else if constexpr (std::is_floating_point_v<T>)
      return static_cast<T>(item().to_double());
    else
      return static_cast<T>(item().to_int());
  }

  // -- differentiation (the autograd library must be linked) --
  bool requires_grad() const { return (mytorch::layer_flags(checked()) & kLayerAutograd) != 0; }
  // Makes a floating-point leaf require gradients, or not; throws Error otherwise. Returns this
  // tensor.
  const Tensor& requires_grad_(bool requires_grad = true) const;
  bool is_leaf() const;
  // Returns the accumulated gradient; undefined before the first backward().
  Tensor grad() const;
  void set_grad(const Tensor& grad) const;
  // Keeps the gradient of a non-leaf tensor in grad().
  void retain_grad() const;
  // Accumulates d(this)/d(leaf) into the grad of each leaf. `gradient` has the shape of this
  // tensor, and may be omitted if this tensor has one element.
  void backward(const Tensor& gradient = {}, bool retain_graph = false,
                bool create_graph = false) const;
  // Calls `hook` with this tensor's gradient each time it is computed; a defined return value
  // replaces the gradient. Returns a handle for remove_hook.
  int64_t register_hook(std::function<Tensor(const Tensor&)> hook) const;
  void remove_hook(int64_t hook) const;
  // Returns the name of the operation that produced this tensor, such as "AddBackward", or "".
  std::string grad_fn() const;
  // Returns a tensor that shares this memory but takes no part in differentiation.
  Tensor detach() const;
  // Makes this leaf, and all copies of it, share the memory, type and device of `data`, of the same
  // shape. Whoever holds the tensor, such as an optimizer, sees the new data. Throws Error(kValue)
  // for a view and for the result of an operation.
  void set_data(const Tensor& data) const;

  // -- indexing --
  // Returns a view of element `index` of the first dimension.
  Tensor operator[](int64_t index) const;
  // Reads and writes elements by indices of several kinds, as x[1, :, mask] does in Python:
  // `x.index({1, Slice(), mask})`. Returns a view if no index is a tensor or bool, else a copy.
  Tensor index(std::initializer_list<indexing::TensorIndex> indices) const;
  Tensor index(const std::vector<indexing::TensorIndex>& indices) const;
  // The same as index({indices...}): x[mask], x[Slice(1, 3)], x(0, 1).
  Tensor operator[](const indexing::TensorIndex& index) const;
  template <class... Indices>
  Tensor operator()(const Indices&... indices) const {
    return index({indices...});
  }
  // `values` broadcasts to the shape of index(indices). Returns this tensor.
  const Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices,
                           const Tensor& values, bool accumulate = false) const;
  const Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices,
                           const Scalar& value, bool accumulate = false) const;
  const Tensor& index_put_(const std::vector<indexing::TensorIndex>& indices, const Tensor& values,
                           bool accumulate = false) const;
  const Tensor& index_put_(const std::vector<indexing::TensorIndex>& indices, const Scalar& value,
                           bool accumulate = false) const;

#include "mytorch/tensor_methods.inc"  // generated from the records with `forms: [method]`

 private:
  TensorImpl* checked() const {
    if (impl_ == nullptr) [[unlikely]]
      fail_undefined();
    return impl_;
  }
  [[noreturn]] static void fail_undefined();
  const void* const_data_checked(ScalarType type) const;
  void* data_checked(ScalarType type) const;

  TensorImpl* impl_;
};

// The indices that Tensor::index and index_put_ take.
namespace indexing {

// A range of a dimension, with negative positions counting from the end: Slice(1, None, 2) is
// Python's 1::2, and Slice() the whole dimension.
struct Slice {
  constexpr Slice(std::optional<int64_t> start = {}, std::optional<int64_t> stop = {},  // NOLINT
                  std::optional<int64_t> step = {})
      : start(start), stop(stop), step(step.value_or(1)) {}
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  int64_t step;
};

inline constexpr std::nullopt_t None = std::nullopt;  // NOLINT: Python's and libtorch's name
struct EllipsisType {};
inline constexpr EllipsisType Ellipsis;  // NOLINT

class TensorIndex {
 public:
  enum Kind : uint8_t { kNone, kEllipsis, kInteger, kBool, kSlice, kTensor };

  TensorIndex(std::nullopt_t) : kind_(kNone) {}                     // NOLINT: a new dimension
  TensorIndex(EllipsisType) : kind_(kEllipsis) {}                   // NOLINT: the others, whole
  TensorIndex(const char* text);                                    // NOLINT: "..." as Ellipsis
  TensorIndex(std::nullptr_t) = delete;                             // use None
  TensorIndex(Slice slice) : kind_(kSlice), slice_(slice) {}        // NOLINT
  TensorIndex(Tensor t) : kind_(kTensor), tensor_(std::move(t)) {}  // NOLINT: mask or positions
  template <detail::Integer T>
  TensorIndex(T at) : kind_(kInteger), slice_(static_cast<int64_t>(at)) {}  // NOLINT
  TensorIndex(bool on) : kind_(kBool), slice_(on) {}  // NOLINT: a new dimension, of 1 or 0
  template <detail::NonInteger NotAnIndex>  // give an integer, bool, Slice, None, "..." or Tensor
  TensorIndex(NotAnIndex) = delete;

  Kind kind() const { return kind_; }
  int64_t integer() const { return *slice_.start; }  // kInteger, kBool
  const Slice& slice() const { return slice_; }
  const Tensor& tensor() const { return tensor_; }  // undefined: the whole dimension

 private:
  Kind kind_;
  Slice slice_;
  Tensor tensor_;
};

}  // namespace indexing

// A number as an operand of a kernel, flagged MT_TENSOR_HOST. Its type is int64, double or bool
// according to its category.
class HostScalar {
 public:
  explicit HostScalar(const Scalar& value) : value_(value.abi()) {
    abi_.dl.data = &value_.v;
    abi_.dl.device = {MT_DEVICE_CPU, 0};
    abi_.dl.dtype = value.is_float() ? mt_dtype{MT_FLOAT, 64, 1}
                    : value.is_int() ? mt_dtype{MT_INT, 64, 1}
                                     : mt_dtype{MT_BOOL, 8, 1};
    abi_.dl.shape = abi_.dl.strides = nullptr;
    abi_.flags = MT_TENSOR_HOST | MT_TENSOR_CONTIGUOUS;
  }
  HostScalar(const HostScalar&) = delete;
  HostScalar& operator=(const HostScalar&) = delete;
  const mt_tensor* abi() const { return &abi_; }

 private:
  mt_scalar value_;
  mt_tensor abi_{};
};

// -- tensors from values --
//
// Returns a 1-dim tensor of the values. The dtype defaults to that of the values; double becomes
// float32, the default float type.
Tensor tensor(std::initializer_list<double> values, ScalarType dtype = kFloat32);
Tensor tensor(const std::vector<float>& values);
Tensor tensor(const std::vector<double>& values, ScalarType dtype = kFloat32);
Tensor tensor(const std::vector<int64_t>& values);
Tensor scalar_tensor(const Scalar& value, std::optional<ScalarType> dtype = {},
                     Device device = kCPU);
// Wraps the caller's memory, row-major unless strides are given. The memory must outlive the
// tensor; `release`, if given, is called when the last tensor that shares the memory is destroyed.
Tensor from_blob(void* data, IntList sizes, ScalarType dtype, Device device = kCPU,
                 OptionalIntList strides = {}, std::function<void()> release = {});

std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

Tensor operator+(const Tensor& a, const Operand& b);
Tensor operator-(const Tensor& a, const Operand& b);
Tensor operator*(const Tensor& a, const Operand& b);
Tensor operator/(const Tensor& a, const Operand& b);
Tensor operator+(const Scalar& a, const Tensor& b);
Tensor operator-(const Scalar& a, const Tensor& b);
Tensor operator*(const Scalar& a, const Tensor& b);
Tensor operator/(const Scalar& a, const Tensor& b);
Tensor operator-(const Tensor& a);
// For two tensors, the reversed forms of == and != would be as good as the others.
Tensor operator==(const Tensor& a, const Tensor& b);
Tensor operator==(const Tensor& a, const Operand& b);
Tensor operator!=(const Tensor& a, const Tensor& b);
Tensor operator!=(const Tensor& a, const Operand& b);
Tensor operator<(const Tensor& a, const Operand& b);
Tensor operator<=(const Tensor& a, const Operand& b);
Tensor operator>(const Tensor& a, const Operand& b);
Tensor operator>=(const Tensor& a, const Operand& b);
const Tensor& operator+=(const Tensor& a, const Operand& b);
const Tensor& operator-=(const Tensor& a, const Operand& b);
const Tensor& operator*=(const Tensor& a, const Operand& b);
const Tensor& operator/=(const Tensor& a, const Operand& b);
// For temporaries: `x[0] += 1`. Throw Error(kValue) where assignment to a temporary does.
const Tensor& operator+=(Tensor&& a, const Operand& b);
const Tensor& operator-=(Tensor&& a, const Operand& b);
const Tensor& operator*=(Tensor&& a, const Operand& b);
const Tensor& operator/=(Tensor&& a, const Operand& b);

inline Operand::Operand(const Tensor& tensor) : impl_(tensor.impl()) {}
inline Tensor Operand::tensor() const { return Tensor::share(impl_); }

inline TensorList::TensorList(std::initializer_list<Tensor> list) {
  data_ = list.begin();
  size_ = list.size();
}
inline TensorList::TensorList(const std::vector<Tensor>& list)
    : data_(list.data()), size_(list.size()) {}
inline const Tensor* TensorList::end() const { return data_ + size_; }
inline const Tensor& TensorList::operator[](size_t i) const { return data_[i]; }

}  // namespace mytorch
