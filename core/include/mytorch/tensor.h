// The tensor: a reference-counted n-dimensional array on a device.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/error.h"
#include "mytorch/generator.h"
#include "mytorch/list.h"
#include "mytorch/scalar.h"
#include "mytorch/std_function.h"
#include "mytorch/tensor_impl.h"

namespace mytorch {

class Tensor;
class IndexedTensor;
class TensorIterator;
class TensorOptions;
enum class Layout : int8_t;
class TensorStorage;
template <class T, size_t n, bool checked>
class TensorAccessor;
template <class T, size_t n, class Index, bool checked>
class PackedTensorAccessor;
namespace indexing {
class TensorIndex;
}

// The order of elements in memory.
enum class MemoryFormat {
  kContiguous,      // row-major
  kPreserve,        // as it is
  kChannelsLast,    // of (N, C, H, W): the channels next to one another
  kChannelsLast3d,  // the same of (N, C, D, H, W)
  // libtorch's names
  Contiguous = kContiguous,
  Preserve = kPreserve,
  ChannelsLast = kChannelsLast,
  ChannelsLast3d = kChannelsLast3d
};

// An argument that is a Tensor, a number, or absent (the default). A number takes part in promotion
// by category only, and is passed to kernels as a 0-dim operand on the caller's stack, so it costs
// no allocation. An Operand does not own the tensor that it refers to.
class Operand {
 public:
  constexpr Operand() noexcept = default;
  Operand(const Tensor& tensor);                      // NOLINT
  Operand(const Scalar& scalar) : scalar_(scalar) {}  // NOLINT
  template <detail::AnyNumber T>
  Operand(T value) : Operand(Scalar(value)) {}  // NOLINT
  Operand(std::nullopt_t) {}                    // NOLINT: clamp(x, std::nullopt, 3)
  template <class T>
  requires(std::is_constructible_v<Scalar, T>) Operand(const std::optional<T>& value) {  // NOLINT
    if (value.has_value()) scalar_ = Scalar(*value);
  }

  bool present() const { return is_tensor() || is_scalar(); }
  bool is_tensor() const { return impl_ != nullptr; }
  bool is_scalar() const { return scalar_.kind_ != MT_SCALAR_NONE; }
  TensorImpl* impl() const { return impl_; }
  Tensor tensor() const;
  const Scalar& scalar() const { return scalar_; }
  uint32_t layer_flags() const { return impl_ != nullptr ? mytorch::layer_flags(impl_) : 0; }

 private:
  TensorImpl* impl_ = nullptr;
  Scalar scalar_{Scalar::Absent{}};  // beside a tensor
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
    note_replaced(copy.impl_);
    return *this;
  }
  Tensor& operator=(Tensor&& other) & noexcept {
    std::swap(impl_, other.impl_);
    note_replaced(other.impl_);
    return *this;
  }
  template <detail::AnyNumber NotATensor>
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
  void reset() { *this = Tensor(); }  // makes this variable undefined, as x = {} does
  TensorImpl* impl() const { return impl_; }
  TensorImpl* operator->() const = delete;
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

  // -- shape, type and device --
  int64_t dim() const { return checked()->abi.dl.ndim; }
  int64_t ndimension() const { return dim(); }
  IntList sizes() const { return checked()->sizes(); }
  IntList strides() const { return checked()->strides(); }  // in elements
  // Negative dimensions count from the end. Throws Error(kShape) if out of range.
  int64_t size(int64_t dim) const;
  int64_t stride(int64_t dim) const;
  int64_t numel() const { return checked()->numel; }
  ScalarType dtype() const { return checked()->dtype; }
  ScalarType scalar_type() const { return dtype(); }
  Device device() const { return checked()->device(); }
  int64_t get_device() const { return is_cpu() ? -1 : device().index; }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_cuda() const { return device().is_cuda(); }
  TensorOptions options()
      const;  // this tensor's dtype and device, for functions that create others
  bool is_same_size(const Tensor& other) const { return sizes() == other.sizes(); }
  bool is_contiguous() const { return checked()->contiguous(); }
  bool is_contiguous(MemoryFormat format) const;
  // Returns kChannelsLast or kChannelsLast3d for strides of that order, else kContiguous.
  MemoryFormat suggest_memory_format() const;
  bool is_view() const { return checked()->base != nullptr; }
  bool is_floating_point() const { return mytorch::is_floating_point(dtype()); }
  bool is_complex() const { return mytorch::is_complex(dtype()); }
  Layout layout() const;  // kStrided
  int64_t storage_offset() const { return checked()->offset(); }
  int64_t element_size() const { return mytorch::element_size(dtype()); }
  int64_t itemsize() const { return element_size(); }
  int64_t nbytes() const { return numel() * element_size(); }
  bool is_signed() const { return mytorch::is_signed(dtype()); }
  // Returns how many times operators have written the memory; shared by all views.
  uint64_t version() const { return checked()->storage->abi.version; }
  int64_t _version() const { return static_cast<int64_t>(version()); }  // libtorch's name
  std::string str() const;  // values and type, as printed by `operator<<`
  void print() const;       // writes the type, shape and device to stderr, without values

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
  TensorStorage storage() const;  // the memory, which views share; mytorch/tensor_storage.h
  void* raw_mutable_data() const;
  void* data_ptr() const { return raw_mutable_data(); }
  template <class T>
  T* data_ptr() const {
    return data<T>();
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data<T>();
  }
  template <class T>
  const T* const_data_ptr() const {
    return const_data<T>();
  }
  // Return element access by `n` indices, a[i][j] or a(i, j), to the memory of a CPU tensor;
  // include mytorch/accessor.h. `const T` only reads. A packed accessor holds the sizes itself, so
  // that kernels can take it by value, and serves memory of any device. Throw Error(kType) and
  // Error(kShape) if T or n does not match.
  template <class T, size_t n>
  auto accessor() const;
  template <class T, size_t n>
  auto packed_accessor32() const;
  template <class T, size_t n>
  auto packed_accessor64() const;
  // Returns the value of a one-element tensor. Throws Error(kShape) for other tensors.
  Scalar item() const;
  template <class T>
  T item() const {
    return item().to<T>();
  }
  // The same: float(x), static_cast<int64_t>(x). Not bool, so that `if (x)` does not compile.
  template <detail::Number Value>
  requires(!std::is_same_v<Value, bool>) explicit operator Value() const { return item<Value>(); }
  bool is_nonzero() const { return item().to_bool(); }
  // Returns the elements in row-major order, converted to T.
  template <class T>
  std::vector<T> to_vector() const {
    std::vector<T> values(static_cast<size_t>(numel()));
    if constexpr (std::is_same_v<T, bool>) {
      std::vector<uint8_t> bytes(values.size());
      copy_values(bytes.data(), kBool);
      values.assign(bytes.begin(), bytes.end());
    } else {
      copy_values(values.data(), scalar_type_of<T>());
    }
    return values;
  }

  // -- differentiation (the autograd library must be linked) --
  bool requires_grad() const { return (mytorch::layer_flags(checked()) & kLayerAutograd) != 0; }
  // Makes a floating-point leaf require gradients, or not; throws Error otherwise. Returns this
  // tensor.
  const Tensor& requires_grad_(bool requires_grad = true) const;
  const Tensor& set_requires_grad(bool requires_grad) const {
    return requires_grad_(requires_grad);
  }
  bool is_leaf() const;
  // Returns the accumulated gradient; undefined before the first backward().
  Tensor grad() const;
  void set_grad(const Tensor& grad) const;
  // Keeps the gradient of a non-leaf tensor in grad().
  void retain_grad() const;
  bool retains_grad() const;  // whether retain_grad did so
  // Accumulates d(this)/d(leaf) into the grad of each leaf or, if `inputs` is given, of those
  // tensors only. `gradient` has the shape of this tensor, and may be omitted if this tensor has
  // one element. A retain_graph of nullopt means create_graph.
  void backward(const Tensor& gradient = {}, std::optional<bool> retain_graph = {},
                bool create_graph = false, TensorList inputs = {}) const;
  // Calls `hook` with this tensor's gradient each time it is computed; a defined return value
  // replaces the gradient. Returns a handle for remove_hook.
  int64_t register_hook(std::function<Tensor(const Tensor&)> hook) const;
  // The same for a hook that returns nothing.
  template <class F>
  requires(std::is_void_v<std::invoke_result_t<F&, const Tensor&>>) int64_t register_hook(F hook)
  const {
    return register_hook([hook = std::move(hook)](const Tensor& gradient) mutable {
      hook(gradient);
      return Tensor();
    });
  }
  void remove_hook(int64_t hook) const;
  // Returns the name of the operation that produced this tensor, such as "AddBackward", or "".
  std::string grad_fn() const;
  // Returns a tensor that shares this memory but takes no part in differentiation.
  Tensor detach() const;
  // Forgets how this tensor was computed, and that it requires grad. Throws Error(kValue) for a
  // view, whose history is its base's. Returns this tensor.
  const Tensor& detach_() const;
  Tensor data() const { return detach(); }  // libtorch's name
  // Makes this leaf, and all copies of it, share the memory, type and device of `data`, of the same
  // shape. Whoever holds the tensor, such as an optimizer, sees the new data. Throws Error(kValue)
  // for a view and for the result of an operation.
  void set_data(const Tensor& data) const;
  // A tensor keeps its shape, on which its views and saved tensors rely. These say so.
#define MYTORCH_KEEPS_ITS_SHAPE(method, parameters, remedy)              \
  template <bool kept = true>                                            \
  void method parameters const {                                         \
    static_assert(!kept, "a tensor keeps its shape: write x = " remedy); \
  }
  MYTORCH_KEEPS_ITS_SHAPE(squeeze_, (std::optional<int64_t> = {}), "x.squeeze(...)")
  MYTORCH_KEEPS_ITS_SHAPE(unsqueeze_, (int64_t), "x.unsqueeze(dim)")
  MYTORCH_KEEPS_ITS_SHAPE(transpose_, (int64_t, int64_t), "x.transpose(dim0, dim1)")
  MYTORCH_KEEPS_ITS_SHAPE(t_, (), "x.t()")
  MYTORCH_KEEPS_ITS_SHAPE(resize_, (IntList), "x.reshape(sizes), or x.new_empty(sizes)")
#undef MYTORCH_KEEPS_ITS_SHAPE

  // -- indexing --
  // Returns a view of element `index` of the first dimension.
  Tensor operator[](int64_t index) const;
  // Reads and writes elements by indices of several kinds, as x[1, :, mask] does in Python:
  // `x.index({1, Slice(), mask})`. Returns a view if no index is a tensor or bool, else a copy,
  // which assignment writes back: `x.index({mask}) = 0`. index_put_ does so without reading first.
  IndexedTensor index(std::initializer_list<indexing::TensorIndex> indices) const;
  IndexedTensor index(const std::vector<indexing::TensorIndex>& indices) const;
  // The same as index({indices...}): x[mask], x[Slice(1, 3)], x(0, 1).
  IndexedTensor operator[](const indexing::TensorIndex& index) const;
  template <class... Indices>
  IndexedTensor operator()(const Indices&... indices) const;
  // `values` broadcasts to the shape of index(indices). Returns this tensor.
  const Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices,
                           const Tensor& values, bool accumulate = false) const;
  const Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices,
                           const Scalar& value, bool accumulate = false) const;
  const Tensor& index_put_(const std::vector<indexing::TensorIndex>& indices, const Tensor& values,
                           bool accumulate = false) const;
  const Tensor& index_put_(const std::vector<indexing::TensorIndex>& indices, const Scalar& value,
                           bool accumulate = false) const;
  // Iterate over views of the elements of the first dimension: `for (Tensor row : x)`. begin throws
  // Error(kShape) for a 0-dim tensor.
  TensorIterator begin() const;
  TensorIterator end() const;

  // -- conversion; `to` is among the operators below --
  // A template, so that a device's name converts to Device alone.
  template <class O>
  requires(std::is_same_v<O, TensorOptions>) Tensor
      to(const O& options, bool non_blocking = false, bool copy = false)
  const { return to_options(options, non_blocking, copy); }
  Tensor cpu() const;
  Tensor cuda() const;
  Tensor toType(ScalarType dtype) const;
  Tensor type_as(const Tensor& other) const;  // of other's type and device
  // Return this tensor if its memory has the order, else a copy whose memory has: row-major, or
  // with the channels, dimension 1 of (N, C, H, W) or (N, C, D, H, W), next to one another.
  Tensor contiguous(MemoryFormat format) const;
  Tensor to(MemoryFormat format) const;
  // Returns a copy whose memory has the order; kPreserve is clone().
  Tensor clone(MemoryFormat format) const;
  // Returns a copy in pinned memory; see mytorch/device_memory.h.
  Tensor pin_memory() const;

  // Returns where(condition, *this, other).
  Tensor where(const Tensor& condition, const Operand& other) const;
  Tensor polygamma(int64_t n) const;  // mytorch::polygamma(n, *this)

#include "mytorch/tensor_methods.inc"  // generated from the records with `forms: [method]`

  // Of all elements, in another type: x.sum(kFloat64) is x.sum({}, false, kFloat64). Templates, so
  // that sum({}) has a list of dimensions.
  template <std::same_as<ScalarType> Type>
  Tensor sum(Type dtype) const {
    return sum(OptionalIntList(), false, dtype);
  }
  template <std::same_as<ScalarType> Type>
  Tensor mean(Type dtype) const {
    return mean(OptionalIntList(), false, dtype);
  }
  template <std::same_as<ScalarType> Type>
  Tensor norm(std::optional<Scalar> p, Type dtype) const {
    return norm(p, OptionalIntList(), false, dtype);
  }

  Tensor T() const;  // numpy_T()
  // Returns a view of the same bytes as elements of another type, detached.
  template <std::same_as<ScalarType> Type>  // so that view({}) has the sizes ()
  Tensor view(Type dtype) const {
    return view_as_type(dtype);
  }
  // Sizes need no braces: x.view(2, 3).
#define MYTORCH_TAKES_SIZES(method)                            \
  template <detail::Integer... Sizes>                          \
  requires(sizeof...(Sizes) > 1) Tensor method(Sizes... sizes) \
  const {                                                      \
    const int64_t list[] = {static_cast<int64_t>(sizes)...};   \
    return method(IntList(list, sizeof...(Sizes)));            \
  }
  MYTORCH_TAKES_SIZES(view)
  MYTORCH_TAKES_SIZES(reshape)
  MYTORCH_TAKES_SIZES(expand)
  MYTORCH_TAKES_SIZES(permute)
  MYTORCH_TAKES_SIZES(repeat)
#undef MYTORCH_TAKES_SIZES

 private:
  TensorImpl* checked() const {
    if (impl_ == nullptr) [[unlikely]]
      fail_undefined();
    return impl_;
  }
  [[noreturn]] static void fail_undefined();
  Tensor view_as_type(ScalarType dtype) const;
  void note_replaced(TensorImpl* former) const {
    if (is_watched(former) || is_watched(impl_)) [[unlikely]]
      count_replaced(this, former);
  }
  static bool is_watched(const TensorImpl* impl) {
    return impl != nullptr && impl->replaced.load(std::memory_order_relaxed) != 0;
  }
  const void* const_data_checked(ScalarType type) const;
  void* data_checked(ScalarType type) const;
  void check_accessor(ScalarType type, size_t n, const char* op) const;
  template <class T>
  T* checked_elements(size_t n, const char* op) const {
    using Value = std::remove_const_t<T>;
    check_accessor(scalar_type_of<Value>(), n, op);
    if constexpr (std::is_const_v<T>) {
      return const_data<Value>();
    } else {
      return data<Value>();
    }
  }
  void copy_values(void* to, ScalarType type) const;
  Tensor to_options(const TensorOptions& options, bool non_blocking, bool copy) const;

  TensorImpl* impl_;
};

// A number as an operand of a kernel, flagged MT_TENSOR_HOST. Its type is int64, double, bool or
// complex128 according to its category.
class HostScalar {
 public:
  explicit HostScalar(const Scalar& value) : value_(value) {
    abi_.dl.data = value_.parts();
    abi_.dl.device = {MT_DEVICE_CPU, 0};
    abi_.dl.dtype = value.is_float()  ? mt_dtype{MT_FLOAT, 64, 1}
                    : value.is_int()  ? mt_dtype{MT_INT, 64, 1}
                    : value.is_bool() ? mt_dtype{MT_BOOL, 8, 1}
                                      : mt_dtype{MT_COMPLEX, 128, 1};
    abi_.dl.shape = abi_.dl.strides = nullptr;
    abi_.flags = MT_TENSOR_HOST | MT_TENSOR_CONTIGUOUS;
  }
  HostScalar(const HostScalar&) = delete;
  HostScalar& operator=(const HostScalar&) = delete;
  const mt_tensor* abi() const { return &abi_; }

 private:
  Scalar value_;
  mt_tensor abi_{};
};

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

#include "mytorch/accessor.h"
#include "mytorch/tensor_index.h"
#include "mytorch/tensor_operators.h"
#include "mytorch/tensor_options.h"
#include "mytorch/tensor_values.h"
