// Metas of tensors, and the nodes of leaves.
#pragma once

#include <mutex>

#include "autograd/access.h"
#include "mytorch/autograd/meta.h"

namespace mytorch::autograd {

// The meta of a tensor, made if it has none.
AutogradMeta& make_meta(TensorImpl* tensor);
void destroy_meta(TensorImpl* tensor);
// Makes `node` (not counted yet) what the tensor's gradient goes to. What hangs on the tensor
// rather than on its former node, which is retain_grad, moves along.
void set_node(TensorImpl* tensor, Node* node, uint32_t output);

// The tensor whose history a view follows, or the tensor itself.
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

  // Of the tensor's grad: leaves are shared by graphs of several threads.
  std::mutex mutex;
};

// Adds `gradient` to `grad`, which may be undefined, of a tensor; takes the buffer where nobody
// else has it.
void accumulate_grad(const TensorImpl* tensor, Tensor* grad, Tensor&& gradient);

}  // namespace mytorch::autograd
