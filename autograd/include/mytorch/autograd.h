// Differentiation of recorded operations. `Tensor` has the everyday part as methods
// (requires_grad_, backward, grad, register_hook, ...); this header adds the rest. Own operations:
// mytorch/autograd/function.h; less memory for more time: mytorch/autograd/checkpoint.h; testing
// gradients: mytorch/autograd/gradcheck.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/tensor.h"

namespace mytorch::autograd {

// Adds d(outputs)/d(leaf), weighted by `grad_outputs`, to the grad of every leaf that the outputs
// were computed from, or only of `inputs` where given. A missing or undefined grad_output stands
// for 1, for outputs of one element.
//   retain_graph  keep what was saved, so that backward may run again
//   create_graph  record the computation of the gradients, so that they can be differentiated; the
//                 graph is then kept too. A leaf's grad then holds a graph that holds the leaf:
//                 reset it with set_grad({}) when done, or use grad(), which has no such cycle
// Throws Error(kValue) for an output that does not require grad; Error(kShape, kType, kDevice) for
// a gradient that does not fit.
void backward(TensorList outputs, TensorList grad_outputs = {}, bool retain_graph = false,
              bool create_graph = false, TensorList inputs = {});

struct GradOptions {
  bool retain_graph = false;
  bool create_graph = false;
  // An input that no output depends on: an undefined gradient if true, else an Error.
  bool allow_unused = false;
};
// The gradients of the outputs with respect to the inputs, one each; changes no tensor's grad.
std::vector<Tensor> grad(TensorList outputs, TensorList inputs, TensorList grad_outputs = {},
                         const GradOptions& options = {});

// Calls `hook` with a leaf each time its grad has been accumulated, for optimizers and
// communication that begin before the backward has ended. Gives a number for Tensor::remove_hook.
int64_t register_post_accumulate_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook);

// While one is alive on a thread, each node made there remembers where it was made, and a backward
// run there throws at the first gradient that is NaN: the error names the operation of the forward
// and prints the stack that recorded it. Slow; for finding mistakes.
class AnomalyMode {
 public:
  explicit AnomalyMode(bool check_nan = true);
  ~AnomalyMode();
  AnomalyMode(const AnomalyMode&) = delete;
  AnomalyMode& operator=(const AnomalyMode&) = delete;

 private:
  bool saved_anomaly_;
  bool saved_check_;
};

// While one is alive on a thread, what is saved for backward there goes through `pack`, and what it
// gave is kept in the tensor's place until `unpack` makes the tensor again: to keep it on another
// device, compressed, or not at all. The innermost hooks apply. `unpack` may run on other threads.
class SavedTensorHooks {
 public:
  using Packed = std::shared_ptr<void>;
  using Pack = std::function<Packed(const Tensor&)>;
  using Unpack = std::function<Tensor(const Packed&)>;
  SavedTensorHooks(Pack pack, Unpack unpack);
  ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

  struct Functions {
    Pack pack;
    Unpack unpack;
  };
  const std::shared_ptr<const Functions>& functions() const { return functions_; }

 private:
  std::shared_ptr<const Functions> functions_;  // shared with what they packed
  SavedTensorHooks* outer_;
};

}  // namespace mytorch::autograd
