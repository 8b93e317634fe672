// Differentiation of recorded operations. The common functions are methods of Tensor
// (requires_grad_, backward, grad, register_hook, ...); this header declares the rest. See also
// mytorch/autograd/functional.h for Jacobians and Hessians, mytorch/autograd/function.h for custom
// operations, mytorch/autograd/checkpoint.h for recomputation, and mytorch/autograd/gradcheck.h for
// testing gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/std_function.h"
#include "mytorch/tensor.h"

namespace mytorch::autograd {

// libtorch's names.
using Variable = Tensor;
using variable_list = std::vector<Tensor>;
using mytorch::AutoGradMode;
using mytorch::GradMode;

// Adds d(outputs)/d(leaf), weighted by `grad_outputs`, to the grad of every leaf that the outputs
// depend on, or, if `inputs` is given, of those tensors only. A missing or undefined grad_output
// means 1 and is allowed only for an output of one element.
//   retain_graph  keeps saved tensors, so that backward can run again; implied by create_graph
//   create_graph  records the gradient computation, so that gradients can be differentiated. A
//                 leaf's grad then holds a graph that holds the leaf: break the cycle with
//                 set_grad({}), or use grad(), which creates none
// Throws Error(kValue) for an output that does not require grad, and Error(kShape, kType or
// kDevice) for a grad_output that does not match its output.
void backward(TensorList outputs, TensorList grad_outputs = {},
              std::optional<bool> retain_graph = {}, bool create_graph = false,
              TensorList inputs = {});

struct GradOptions {
  bool retain_graph = false;  // implied by create_graph
  bool create_graph = false;
  // The gradient of an input that no output depends on: an error by default, an undefined tensor
  // with allow_unused, zeros with materialize_grads.
  bool allow_unused = false;
  bool materialize_grads = false;
};
// Returns the gradients of the outputs with respect to the inputs, one per input, each with the
// shape, type and device of its input. Changes no tensor's grad, and computes only the part of the
// graph between the outputs and the inputs. Throws the errors of backward, and Error(kValue) for an
// input that does not require grad or that no output depends on.
std::vector<Tensor> grad(TensorList outputs, TensorList inputs, TensorList grad_outputs = {},
                         const GradOptions& options = {});
// The same with libtorch's order of arguments. A retain_graph of nullopt means create_graph.
std::vector<Tensor> grad(TensorList outputs, TensorList inputs, TensorList grad_outputs,
                         std::optional<bool> retain_graph, bool create_graph = false,
                         bool allow_unused = false);
template <class Model>
requires requires(const Model& model) { model.parameters(); }
std::vector<Tensor> grad(TensorList /*outputs*/, const Model& /*model*/, TensorList = {}, ...) {
  static_assert(
      !requires(const Model& model) { model.parameters(); },
      "grad takes tensors: write grad({loss}, model.parameters())");
  return {};
}

// Calls `hook` with a leaf each time its grad has been accumulated, so that optimizers and
// communication can overlap with backward. Returns a handle for Tensor::remove_hook.
int64_t register_post_accumulate_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook);

// Names a tensor that requires grad; messages about gradients use the name. An operation that
// writes the tensor in place makes another value, which has no name. name() returns "" for a tensor
// without one. set_name throws Error(kValue) if the tensor does not require grad.
void set_name(const Tensor& tensor, std::string name);
std::string name(const Tensor& tensor);

// Names the part of the program that runs on this thread for the lifetime of this object, such as a
// module. Anomaly mode reports where an operation was recorded as the names of the enclosing
// scopes, joined by dots. `name` must outlive the object.
class NameScope {
 public:
  explicit NameScope(std::string_view name) : name_(name), outer_(innermost_) { innermost_ = this; }
  ~NameScope() { innermost_ = outer_; }
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;
  // Returns the joined names of the thread's scopes; "" if there are none.
  static std::string path();

 private:
  std::string_view name_;
  const NameScope* outer_;
  static thread_local constinit const NameScope* innermost_
      __attribute__((tls_model("initial-exec")));
};

// Enables anomaly detection on this thread for the lifetime of this object. Backward then throws
// Error(kValue) at the first gradient that contains NaN. The message names the operation, the scope
// and the functions that recorded it, and the operations that computed its operands. Calls of
// nn::Modules are scopes, by their registered names. Functions of a program have names only if it
// is linked with -rdynamic. Slow; for debugging.
class AnomalyMode {
 public:
  explicit AnomalyMode(bool check_nan = true);
  ~AnomalyMode();
  static bool is_enabled();  // on this thread
  // Sets the mode of this thread, for programs without a scope to bound it.
  static void set_enabled(bool enabled, bool check_nan = true);
  AnomalyMode(const AnomalyMode&) = delete;
  AnomalyMode& operator=(const AnomalyMode&) = delete;

 private:
  bool saved_anomaly_;
  bool saved_check_;
};
using DetectAnomalyGuard = AnomalyMode;  // libtorch's name

// Installs hooks on this thread for the lifetime of this object. Each tensor saved for backward is
// replaced by the result of `pack`; `unpack` restores it when backward needs it. This allows saved
// tensors to be offloaded, compressed or recomputed. Only the innermost hooks apply. `unpack` may
// run on other threads.
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
