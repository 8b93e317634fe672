// Functions that record an operation for differentiation. autograd/recording.h makes the wrappers
// of the library's operators of them:
//
//   Tensor recorded_mul(const Tensor& self, const Operand& other) {
//     Tensor result = Layered<ops::mul_Tensor, kFunction>::next<kLayerAutograd>(self, other);
//     if (any_requires_grad(self, other)) {
//       auto node = make_node<MulBackward>(2, 1);
//       node->edge(0, self);
//       node->edge(1, other);
//       if (node->has_edge(0)) node->other_ = SavedTensor(other);
//       if (node->has_edge(1)) node->self_ = SavedTensor(self);
//       set_history(result, node);
//       // node->result_ = SavedTensor::output(result, node.get());
//     }
//     return result;
//   }
//
//   const Tensor& recorded_mul_(const Tensor& self, const Operand& other) {
//     NodePtr<MulBackward> node;
//     if (any_requires_grad_write(self, other)) {
//       check_inplace(self, "mul_");
//       node = make_node<MulBackward>(2, 1);
//       node->edge(0, self);  // edge 0 of an in-place node leads to the tensor written
//       node->edge(1, other);
//       if (node->has_edge(0)) node->other_ = SavedTensor::before_write(other.tensor(), self);
//       if (node->has_edge(1)) node->self_ = SavedTensor::before_write(self, self);
//     }
//     Layered<ops::mul_Tensor, kInplace>::next<kLayerAutograd>(self, other);
//     if (node) rebase_history(self, node);
//     return self;
//   }
#pragma once

#include <cstdint>

#include "mytorch/autograd/node.h"
#include "mytorch/autograd/saved_tensor.h"
#include "mytorch/grad_mode.h"
#include "mytorch/tensor.h"
#include "mytorch/thread_state.h"

namespace mytorch::autograd {

inline bool requires_grad(const TensorImpl* tensor) { return edge_of(tensor).node != nullptr; }
inline bool requires_grad(const Tensor& tensor) { return requires_grad(tensor.impl()); }
inline bool requires_grad(const Operand& operand) { return requires_grad(operand.impl()); }
inline bool requires_grad(TensorList tensors) {
  for (const Tensor& tensor : tensors) {
    if (requires_grad(tensor)) return true;
  }
  return false;
}

// Returns whether an operation on `args` must be recorded: gradient mode is on, and one of them
// requires grad.
template <class... Args>
bool any_requires_grad(const Args&... args) {
  return thread_state.grad_mode && (requires_grad(args) || ...);
}

// Returns the same for an operation that writes `written`. A view counts if its base requires grad,
// even if the view itself is a constant, because the write also changes the base.
template <class... Args>
bool any_requires_grad_write(const Tensor& written, const Args&... args) {
  if (!thread_state.grad_mode || !written.defined()) return false;
  return (layer_flags(written.impl()) & kLayerAutograd) != 0 || (requires_grad(args) || ...);
}

// Makes `result` output number `output` of the operation that `node` differentiates. Does nothing
// if the result is not of a floating type.
void set_history(const Tensor& result, Node* node, uint32_t output = 0);
// Does the same for a result that may be a view of `self`, or `self` itself (which records
// nothing).
void as_view(const Tensor& result, const Tensor& self, Node* node, uint32_t output = 0);
// Call before an in-place operation on `self` that will be recorded. Throws if that is not allowed.
void check_inplace(const Tensor& self, const char* op);
// Call after the operation: makes `node`, whose edge 0 leads to the former producer of `self`, the
// producer of `self`. If `self` is a view, its base gets the history, and all views of the base
// inherit it.
void rebase_history(const Tensor& self, Node* node);

// Returns the gradient of as_strided(input, sizes, strides, offset) for an input of the given
// geometry. `grad` has shape `sizes`; offsets count elements from the start of the storage.
// Gradients of overlapping elements are summed. Built from recorded operations.
Tensor as_strided_backward(const Tensor& grad, IntList input_sizes, IntList input_strides,
                           int64_t input_offset, IntList sizes, IntList strides, int64_t offset);

}  // namespace mytorch::autograd
