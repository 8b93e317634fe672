// The representation of a Tensor. Its first member is what kernels see through the C contract, so a
// call builds no descriptors. Model code needs only mytorch/tensor.h.
#pragma once

#include <atomic>
#include <cstdint>

#include "mytorch/abi.h"
#include "mytorch/dtype.h"
#include "mytorch/list.h"
#include "mytorch/storage.h"

namespace mytorch {

// Owned by the autograd library; core only stores the pointer.
struct AutogradMeta;

// The layers above the kernels, outermost first: bits of ThreadState, and of
// TensorImpl::layer_flags, which autograd and vmap set.
enum LayerBits : uint32_t {
  kLayerAutocast = 1u << 0,
  kLayerAutograd = 1u << 1,  // the tensor takes part in differentiation
  kLayerBatch = 1u << 2,     // a batched tensor of vmap
  kLayerCapture = 1u << 3,   // the thread records a graph
};
inline constexpr int kNumLayers = 4;

inline constexpr int kInlineDims = 5;

struct TensorImpl {
  mt_tensor abi{};  // first: a TensorImpl* is a const mt_tensor*
  std::atomic<uint32_t> refs{1};
  uint32_t layer_flags = 0;
  ScalarType dtype = ScalarType::kFloat32;
  uint8_t device_slot = 0;
  bool inference = false;     // created in inference mode: no version, no view tracking
  bool read_only = false;     // over memory that must not be written
  bool no_grad_view = false;  // a view created while gradient recording was disabled
  uint16_t size_class = 0;    // in the pool that it came from
  bool has_views = false;     // of a root: views of it were created
  // How often a variable that referred to this tensor was made to refer to another one, once a
  // compiled function watches it (watch_replaced); 0 before. The results of operators that are
  // being recorded are watched, too, to see which variables keep them.
  std::atomic<uint16_t> replaced{0};
  uint32_t view_version = 0;  // the low bits of the storage's version when this view was created
  int64_t numel = 0;
  Storage* storage = nullptr;  // counted by a root; a view's storage is kept alive by its base
  TensorImpl* base = nullptr;  // counted; the root that owns the storage, or null for a root
  AutogradMeta* autograd = nullptr;
  int64_t inline_dims[2 * kInlineDims];  // shape, then strides, up to kInlineDims dimensions

  IntList sizes() const { return {abi.dl.shape, static_cast<size_t>(abi.dl.ndim)}; }
  IntList strides() const { return {abi.dl.strides, static_cast<size_t>(abi.dl.ndim)}; }
  bool contiguous() const { return (abi.flags & MT_TENSOR_CONTIGUOUS) != 0; }
  Device device() const { return {abi.dl.device.type, abi.dl.device.index}; }
  // Returns the number of elements between the start of the storage and the first element.
  int64_t offset() const {
    return (static_cast<const char*>(abi.dl.data) - static_cast<const char*>(storage->data)) /
           element_size(dtype);
  }
  void bump_version() { ++storage->abi.version; }
};

inline const mt_tensor* to_abi(const TensorImpl* impl) { return &impl->abi; }

// Returns the layers that a tensor requires. A view inherits its base's layers, because the base
// may gain history after the view is created.
inline uint32_t layer_flags(const TensorImpl* impl) {
  return impl->layer_flags | (impl->base != nullptr ? impl->base->layer_flags : 0);
}

// Creates a root with its own uninitialized, contiguous memory and a reference count of 1.
TensorImpl* new_tensor(const int64_t* sizes, int ndim, ScalarType dtype, Device device,
                       int device_slot);
// Creates the same with the shape and device of a contiguous tensor.
TensorImpl* new_contiguous_like(const TensorImpl& like, ScalarType dtype);
// Creates the same with the given strides, which must be dense: contiguous in some permutation of
// the dimensions.
TensorImpl* new_tensor_strided(IntList sizes, IntList strides, ScalarType dtype, Device device);
// Creates a view of `of`. `offset` counts elements from the first element of `of`. The base of the
// view is the root of `of`.
TensorImpl* new_view(TensorImpl* of, IntList sizes, IntList strides, int64_t offset);
// The same for a view of another type, in whose elements the strides are.
TensorImpl* new_view(TensorImpl* of, IntList sizes, IntList strides, int64_t offset,
                     ScalarType dtype);
// The same at the first element, with a base also in inference mode: the tensor does not hold the
// storage, so that its owner may give it another.
TensorImpl* new_header(TensorImpl* of, IntList sizes, IntList strides, ScalarType dtype);
// Creates a tensor with the same geometry and storage but no base, as detach returns.
TensorImpl* new_alias(TensorImpl* of);
// Makes the root `impl` refer to the storage, type and device of `data`, which has the same shape.
void replace_data(TensorImpl* impl, const TensorImpl& data);
// Creates a root over existing storage; takes over one reference to it.
TensorImpl* new_tensor_over(Storage* storage, IntList sizes, IntList strides, ScalarType dtype,
                            int64_t offset);
// Has replacements counted from now on, and returns the count.
uint16_t watch_replaced(TensorImpl* impl);
// Counts one for the tensor to which a variable referred before. While this thread records a graph,
// tells the recording instead, which follows the variables of the function.
void count_replaced(const Tensor* variable, TensorImpl* former);
void destroy_tensor(TensorImpl* impl);  // called when the last reference is released

inline void release(TensorImpl* impl) {
  if (impl != nullptr && detail::release_last(impl)) destroy_tensor(impl);
}

// The number of elements; the strides of a contiguous tensor; whether (sizes, strides) is
// contiguous.
int64_t count(IntList sizes);
void contiguous_strides(const int64_t* sizes, int ndim, int64_t* strides);
bool is_contiguous(IntList sizes, IntList strides);
// Returns whether two index tuples may refer to the same element, as with stride 0 or
// self-overlapping strides.
bool has_internal_overlap(const TensorImpl& impl);
// The memory range from the lowest to past the highest element of a tensor, whatever its strides.
// Null and empty for a tensor without elements.
struct Extent {
  char* begin = nullptr;
  char* end = nullptr;
  uint64_t bytes() const { return static_cast<uint64_t>(end - begin); }
  // The bytes from `begin` to the first element of the tensor.
  int64_t offset(const mt_tensor& of) const {
    return begin == nullptr ? 0 : static_cast<const char*>(of.dl.data) - begin;
  }
};
Extent extent(const mt_tensor& t);
enum class Overlap { kNone, kExact, kPartial };
// Returns how the elements of two tensors share memory. Conservative: kPartial if unsure.
Overlap overlap(const mt_tensor& a, const mt_tensor& b);

}  // namespace mytorch
