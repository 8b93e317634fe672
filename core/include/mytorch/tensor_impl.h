// What a Tensor points at. Kernels see its first member through the C contract, so nothing is built
// for a call. Model code needs only mytorch/tensor.h.
#pragma once

#include <atomic>
#include <cstdint>

#include "mytorch/abi.h"
#include "mytorch/dtype.h"
#include "mytorch/list.h"
#include "mytorch/storage.h"

namespace mytorch {

// Owned by the autograd library; core only carries the pointer.
struct AutogradMeta;

// The layers above the kernels, outermost first: bits of ThreadState, and of
// TensorImpl::layer_flags, which only autograd sets.
enum LayerBits : uint32_t {
  kLayerAutocast = 1u << 0,
  kLayerAutograd = 1u << 1,  // the tensor takes part in differentiation
  kLayerCapture = 1u << 2,
};
inline constexpr int kNumLayers = 3;

inline constexpr int kInlineDims = 5;

struct TensorImpl {
  mt_tensor abi{};  // first: a TensorImpl* is a const mt_tensor*
  std::atomic<uint32_t> refs{1};
  uint32_t layer_flags = 0;
  ScalarType dtype = ScalarType::kFloat32;
  uint8_t device_slot = 0;
  bool inference = false;     // made in inference mode: no version, no view tracking
  bool no_grad_view = false;  // a view made while no gradients were recorded
  uint16_t size_class = 0;    // of the pool it came from
  uint32_t view_version = 0;  // of the storage when this view was made (its low bits)
  int64_t numel = 0;
  Storage* storage = nullptr;  // counted by a root; a view's is kept by its base
  TensorImpl* base = nullptr;  // counted; the root that owns the storage, null for a root
  AutogradMeta* autograd = nullptr;
  int64_t inline_dims[2 * kInlineDims];  // shape, then strides, up to kInlineDims dimensions

  IntList sizes() const { return {abi.dl.shape, static_cast<size_t>(abi.dl.ndim)}; }
  IntList strides() const { return {abi.dl.strides, static_cast<size_t>(abi.dl.ndim)}; }
  bool contiguous() const { return (abi.flags & MT_TENSOR_CONTIGUOUS) != 0; }
  Device device() const { return {abi.dl.device.type, abi.dl.device.index}; }
  // Elements between the storage's beginning and the first element.
  int64_t offset() const {
    return (static_cast<const char*>(abi.dl.data) - static_cast<const char*>(storage->data)) /
           element_size(dtype);
  }
  void bump_version() { ++storage->abi.version; }
};

inline const mt_tensor* to_abi(const TensorImpl* impl) { return &impl->abi; }

// The layers that a tensor calls for. A view follows its base, whose history may be younger than
// it.
inline uint32_t layer_flags(const TensorImpl* impl) {
  return impl->layer_flags | (impl->base != nullptr ? impl->base->layer_flags : 0);
}

// A root with its own, uninitialized, contiguous memory. Counted once.
TensorImpl* new_tensor(const int64_t* sizes, int ndim, ScalarType dtype, Device device,
                       int device_slot);
// The same in the shape, and on the device, of a contiguous tensor.
TensorImpl* new_contiguous_like(const TensorImpl& like, ScalarType dtype);
// The same with given strides (dense in some permutation of the dimensions, no overlap).
TensorImpl* new_tensor_strided(IntList sizes, IntList strides, ScalarType dtype, Device device);
// A view of `of`'s memory: `offset` in elements from of's first element. Its base is of's root.
TensorImpl* new_view(TensorImpl* of, IntList sizes, IntList strides, int64_t offset);
// The same geometry without base: what detach gives.
TensorImpl* new_alias(TensorImpl* of);
// A root over existing storage (takes over one reference to it).
TensorImpl* new_tensor_over(Storage* storage, IntList sizes, IntList strides, ScalarType dtype,
                            int64_t offset);
void destroy_tensor(TensorImpl* impl);  // when the last reference goes

inline void release(TensorImpl* impl) {
  if (impl != nullptr && detail::release_last(impl)) destroy_tensor(impl);
}

// Elements, the strides of a contiguous tensor, and whether (sizes, strides) is contiguous.
int64_t count(IntList sizes);
void contiguous_strides(const int64_t* sizes, int ndim, int64_t* strides);
bool is_contiguous(IntList sizes, IntList strides);
// Whether two index tuples may name one element (some stride-0 or self-overlapping pattern).
bool has_internal_overlap(const TensorImpl& impl);
enum class Overlap { kNone, kExact, kPartial };
// How the elements of two tensors share memory; conservative: kPartial when in doubt.
Overlap overlap(const mt_tensor& a, const mt_tensor& b);

}  // namespace mytorch
