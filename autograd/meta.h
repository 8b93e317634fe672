// The autograd metadata of tensors, and the nodes of leaves.
#pragma once

#include <mutex>

#include "autograd/access.h"
#include "mytorch/autograd/meta.h"

namespace mytorch::autograd {

// Returns the metadata of a tensor; makes it if there is none.
AutogradMeta& make_meta(TensorImpl* tensor);
void destroy_meta(TensorImpl* tensor);
// Makes `node` (not yet counted) the history of the tensor. retain_grad, which belongs to the
// tensor, moves to it.
void set_node(TensorImpl* tensor, Node* node, uint32_t output);
// Makes the tensor one without a history that requires no grad. Its hooks stay with the former
// history, which writes no more to its grad.
void clear_node(TensorImpl* tensor);

// Returns the base of a view, whose history the view follows, or the tensor itself.
inline TensorImpl* root_of(TensorImpl* tensor) {
  return tensor->base != nullptr ? tensor->base : tensor;
}
inline bool is_grad_leaf(const TensorImpl* tensor) {
  const AutogradMeta* meta = tensor->autograd;
  return meta != nullptr && meta->node != nullptr && NodeAccess::is_leaf(meta->node);
}

// Adds gradients to the grad of its tensor.
class LeafNode final : public Node {
 public:
  const char* name() const override { return "AccumulateGrad"; }
  void apply(Tensor* grads, Tensor* out) override;

  // Protects the tensor's grad: graphs of several threads share leaves.
  std::mutex mutex;
};

// Returns whether a gradient may be written: nothing else refers to it or its memory, no work on
// another stream may still read it, and no gradients of gradients are recorded.
bool is_writable(const Tensor& gradient);

// Adds `gradient` to `grad`, the possibly undefined gradient of a tensor. Takes over the memory of
// `gradient` if nothing else refers to it.
void accumulate_grad(const TensorImpl* tensor, Tensor* grad, Tensor&& gradient);

}  // namespace mytorch::autograd
