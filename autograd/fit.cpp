// Fits gradients to the shapes and types of their inputs.
#include "autograd/access.h"
#include "autograd/engine/gradients.h"
#include "autograd/generated.h"
#include "core/types/errors.h"
#include "mytorch/ops/real.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"
#include "ops/gradients.h"

namespace mytorch::autograd {
namespace {

struct EdgeTarget {
  IntList sizes;
  ScalarType dtype;
  bool known;
};

// Returns the form of the tensor at the other end of an edge.
EdgeTarget target(const Node* node, uint32_t i) {
  // The node of a write to a view: edge 0 belongs to the base, whose node selects the view from it.
  if (i == 0 && NodeAccess::enclosing(node) != nullptr) return {{}, kFloat32, false};
  const Edge& edge = node->edges()[i];
  if (edge.node == nullptr) return {{}, kFloat32, false};
  if (NodeAccess::is_leaf(edge.node)) {
    const TensorImpl* leaf = NodeAccess::leaf_tensor(edge.node);
    return {leaf->sizes(), leaf->dtype, true};
  }
  const GradInfo& info = edge.node->infos()[edge.input];
  return {info.sizes(), info.dtype, info.ndim >= 0};
}

}  // namespace

Tensor fit(const Node* node, uint32_t i, Tensor gradient) {
  const EdgeTarget to = target(node, i);
  if (!gradient.defined() || !to.known) return gradient;
  if (!(gradient.sizes() == to.sizes)) gradient = grads::sum_to(gradient, to.sizes);
  // A real operand of a complex result takes the real part.
  if (gradient.is_complex() && !is_complex(to.dtype)) gradient = mytorch::real(gradient);
  if (gradient.dtype() != to.dtype) gradient = mytorch::to(gradient, to.dtype);
  return gradient;
}

void fail_no_gradient(const char* op, const char* arg) {
  fail(ErrorCode::kUnsupported, "[", op, "] has no gradient with respect to '", arg,
       "', which requires one: pass ", arg, ".detach() if it is to be constant");
}

Tensor zero_gradient(const Node* node, uint32_t i, const Tensor& like) {
  const EdgeTarget to = target(node, i);
  return mytorch::zeros(to.sizes, to.dtype, like.device());
}

}  // namespace mytorch::autograd
