#include "mytorch/autograd/record.h"

#include "autograd/meta.h"
#include "core/types/errors.h"

namespace mytorch::autograd {

void set_history(const Tensor& result, Node* node, uint32_t output) {
  TensorImpl* impl = result.impl();
  if (impl == nullptr || !is_differentiable(impl->dtype)) return;
  AutogradMeta& meta = make_meta(impl);
  if (meta.node != nullptr) [[unlikely]] {
    fail(ErrorCode::kInternal, "[", node->name(), "] the result already has a history (",
         meta.node->name(), ")");
  }
  node->infos()[output].set(*impl);
  NodeAccess::retain_unpublished(node);
  meta.node = node;
  meta.output = output;
  meta.version = impl->storage->abi.version;
  impl->layer_flags |= kLayerAutograd;
}

void as_view(const Tensor& result, const Tensor& self, Node* node, uint32_t output) {
  if (!result.is_same(self)) set_history(result, node, output);
}

void check_inplace(const Tensor& self, const char* op) {
  const TensorImpl* impl = self.impl();
  thread_data.inplace_op = op;
  if (impl->inference && !thread_state.inference_mode) {
    fail(ErrorCode::kValue, "[", op,
         "] writes an inference tensor outside inference mode: clone() it first");
  }
  if (is_grad_leaf(impl)) {
    fail(
        ErrorCode::kValue, "[", op,
        "] writes a leaf that requires grad, which would lose it as a place for gradients: use the "
        "functional form, or a NoGradGuard if the write is not to be differentiated");
  }
  if (impl->base == nullptr) return;
  if (is_grad_leaf(impl->base)) {
    fail(ErrorCode::kValue, "[", op,
         "] writes a view of a leaf that requires grad: use the functional form, or a NoGradGuard "
         "if "
         "the write is not to be differentiated");
  }
  if (impl->no_grad_view) {
    fail(ErrorCode::kValue, "[", op,
         "] writes, with gradients enabled, a view that was made in no-grad mode: whether the "
         "write is "
         "to be differentiated is ambiguous. Do both in the same mode");
  }
}

}  // namespace mytorch::autograd
