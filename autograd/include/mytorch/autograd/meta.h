// What a tensor that takes part in differentiation has beyond the array.
#pragma once

#include <cstdint>

#include "mytorch/tensor.h"

namespace mytorch {

namespace autograd {
class Node;
struct MetaExtras;
}  // namespace autograd

// One per tensor, from the pool; freed with it.
struct AutogradMeta {
  // Where a gradient of the tensor goes: the node that made it (counted), or `leaf` (not counted).
  autograd::Node* node = nullptr;
  autograd::Node* leaf = nullptr;  // made by requires_grad_; lives as long as the tensor
  // Views: the version of the storage that `node` belongs to. After a write it is made anew.
  uint64_t version = 0;
  uint32_t output = 0;  // of `node`
  uint8_t size_class = 0;
  autograd::MetaExtras* extras = nullptr;  // hooks and other rarities
  Tensor grad;
};

namespace autograd {

// Where a gradient goes: an input of a node, which is an output of the operation it differentiates.
// No node: nowhere.
struct Edge {
  Node* node = nullptr;
  uint32_t input = 0;
};

// The edge that leads to a tensor, not counted. A view whose base was written has another one
// since.
Edge edge_of_view(const TensorImpl* view);
inline Edge edge_of(const TensorImpl* tensor) {
  if (tensor == nullptr) return {};
  const AutogradMeta* meta;
  if (tensor->base == nullptr) {
    meta = tensor->autograd;
    if (meta == nullptr) return {};
  } else {
    // edge_of_view may be changing these on another thread.
    meta = __atomic_load_n(&tensor->autograd, __ATOMIC_ACQUIRE);
    if (meta == nullptr || __atomic_load_n(&meta->version, __ATOMIC_ACQUIRE) !=
                               tensor->storage->abi.version) [[unlikely]] {
      return edge_of_view(tensor);
    }
  }
  return {meta->node, meta->output};
}

}  // namespace autograd
}  // namespace mytorch
