// Backward in two parts: first the gradients that others wait for, later those of parameters.
#pragma once

#include <memory>
#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::autograd {

struct Parked;

// Computes the gradients of some inputs at once, and adds those of all other leaves later:
//
//   autograd::SplitBackward split({y}, {x}, {gradient});
//   send(split.input_gradients()[0]);
//   ...
//   split.accumulate();  // as the rest of backward({y}, {gradient})
//
// Together, both do what backward does, except that the inputs' grads remain as they are. No
// gradient is computed twice: the first part keeps what arrives at operations whose other operands
// lead to leaves, and the second one begins there. An operation that gives all its gradients at
// once, such as a Function or a compiled function, computes them in the first part; a Function that
// leaves some undefined there is called again for these. Only a function under `checkpoint` whose
// saved values both parts read is recomputed by both. What an operation
// has saved is freed as soon as no part needs it any more. Hooks on tensors run once, with the part
// that computes their gradients.
class SplitBackward {
 public:
  SplitBackward() = default;  // nothing to do
  // The arguments of backward; `inputs` are leaves, and may be none. Throws the errors of backward,
  // Error(kValue) for an input that is not a leaf or does not require grad, and Error(kUnsupported)
  // inside vmap.
  SplitBackward(TensorList outputs, TensorList inputs, TensorList grad_outputs = {});

  // One per input; undefined for one that no output depends on.
  const std::vector<Tensor>& input_gradients() const { return gradients_; }
  // Adds the gradients of the other leaves to their grads, and frees the graph. Later calls do
  // nothing.
  void accumulate();

 private:
  std::vector<Tensor> gradients_;
  std::shared_ptr<Parked> parked_;
};

}  // namespace mytorch::autograd
