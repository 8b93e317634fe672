#include "autograd/autocast/cast.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "autograd/meta.h"
#include "core/runtime/stream_capture.h"
#include "core/tensor/capture_layer.h"
#include "core/types/dims.h"
#include "mytorch/autocast.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/to.h"

namespace mytorch::autocast {
namespace {

enum CastMode : uint8_t { kGrad, kNoGrad, kInference };

CastMode mode() {
  if (inference_mode_enabled()) return kInference;
  return grad_enabled() ? kGrad : kNoGrad;
}

// A leaf, a type, and the mode in which the cast was recorded or not.
struct CastKey {
  const autograd::Node* leaf;
  ScalarType dtype;
  CastMode mode;
  bool operator==(const CastKey&) const = default;
  template <class H>
  friend H AbslHashValue(H hash, const CastKey& key) {
    return H::combine(std::move(hash), key.leaf, key.dtype, key.mode);
  }
};

struct CachedCast {
  autograd::CountedEdge leaf;  // keeps the address in the key from being used again
  // The data of the leaf when it was cast.
  uint64_t storage;
  uint64_t version;
  const void* data;
  Dims sizes;
  Dims strides;
  uint64_t capture;  // the capture that the cast belongs to, or 0
  Tensor result;
};

thread_local absl::flat_hash_map<CastKey, CachedCast> kept;

uint64_t capture_on(const TensorImpl& impl) {
  return capture_of(*context(impl.device_slot, impl.abi.dl.device));
}

bool is_current(const CachedCast& entry, const TensorImpl& leaf) {
  return entry.storage == leaf.storage->abi.id && entry.version == leaf.storage->abi.version &&
         entry.data == leaf.abi.dl.data && as_list(entry.sizes) == leaf.sizes() &&
         as_list(entry.strides) == leaf.strides() && entry.capture == capture_on(leaf);
}

Tensor convert(const Tensor& tensor, ScalarType dtype) {
  const LayerMask masked(kLayerAutocast);
  return to(tensor, dtype);
}

bool may_keep(const TensorImpl& impl) {
  return state.cache_enabled && autograd::is_grad_leaf(&impl) && !impl.inference &&
         (impl.storage->abi.flags & MT_STORAGE_ESCAPED) == 0;
}

}  // namespace

void clear_cache() { kept.clear(); }

Tensor cast(const Tensor& tensor, ScalarType dtype) {
  const TensorImpl& impl = *tensor.impl();
  if (!may_keep(impl)) return convert(tensor, dtype);
  const autograd::Edge leaf = autograd::edge_of(&impl);
  const CastKey key{leaf.node, dtype, mode()};
  if (const auto found = kept.find(key); found != kept.end()) {
    if (is_current(found->second, impl)) return found->second.result;
  }
  Tensor result = convert(tensor, dtype);
  if (recording_graph()) capture_table->caches(result);
  kept.insert_or_assign(
      key, CachedCast{autograd::CountedEdge(leaf), impl.storage->abi.id, impl.storage->abi.version,
                      impl.abi.dl.data, to_dims(impl.sizes()), to_dims(impl.strides()),
                      capture_on(impl), result});
  return result;
}

}  // namespace mytorch::autocast
