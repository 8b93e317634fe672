// Autograd's data of a tensor.
#pragma once

#include <cstdint>

#include "mytorch/tensor.h"

namespace mytorch {

namespace autograd {
class Node;
struct MetaExtras;
}  // namespace autograd

// One per tensor that takes part in differentiation; allocated from the pool and freed with the
// tensor.
struct AutogradMeta {
  // The destination of the tensor's gradient: the node that produced it (counted), or `leaf` (not
  // counted).
  autograd::Node* node = nullptr;
  autograd::Node* leaf = nullptr;  // made by requires_grad_; lives as long as the tensor
  // For views: the storage version for which `node` is valid; a write invalidates it.
  uint64_t version = 0;
  uint32_t output = 0;  // of `node`
  uint8_t size_class = 0;
  autograd::MetaExtras* extras = nullptr;  // hooks and other rare data
  Tensor grad;
};

namespace autograd {

// The destination of a gradient: input `input` of `node`, that is, an output of the operation that
// `node` differentiates. A null node discards the gradient.
struct Edge {
  Node* node = nullptr;
  uint32_t input = 0;
};

// Returns the edge to a tensor, without taking a reference. The edge of a view changes when its
// base is written.
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
