// backward() and grad().
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "autograd/engine/gradients.h"
#include "autograd/engine/task.h"
#include "autograd/leaves.h"
#include "autograd/meta.h"
#include "autograd/operators.h"
#include "autograd/vmap/batched.h"
#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/record.h"
#include "mytorch/autograd/split_backward.h"

namespace mytorch::autograd {
namespace {

// Nested backward calls use the stack; deeper calls continue on a new thread.
constexpr int kMaxDepth = 64;

class DepthScope {
 public:
  DepthScope() { ++thread_data.depth; }
  ~DepthScope() { --thread_data.depth; }
};

void run_task(Task& task) {
  if (thread_data.depth < kMaxDepth) {
    DepthScope depth;
    task.run();
    return;
  }
  std::exception_ptr error;
  const ThreadState state = thread_state;
  const ThreadData data = thread_data;
  const batch::BatchState batching = batch::state;
  std::thread([&] {
    batch::state = batching;
    thread_state.layers = state.layers;
    thread_state.wanted = state.wanted;
    thread_state.grad_mode = state.grad_mode;
    thread_state.inference_mode = state.inference_mode;
    thread_data.anomaly = data.anomaly;
    thread_data.check_nan = data.check_nan;
    thread_data.executing = data.executing;
    try {
      DepthScope depth;
      task.run();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error != nullptr) std::rethrow_exception(error);
}

// Returns the initial gradient of an output: the given one, or 1.
Tensor first_gradient(const char* op, size_t i, const Tensor& output, const Tensor& given) {
  if (!given.defined()) {
    if (output.numel() != 1) {
      fail(ErrorCode::kValue, "[", op, "] output ", i, " has shape ", shape_str(output.sizes()),
           ": a gradient can be omitted for a single element only");
    }
    return op::ones(output.sizes(), output.dtype(), output.device());
  }
  Tensor gradient = given;
  GradInfo info;
  info.set(*output.impl());
  if (gradient.dtype() != output.dtype()) {
    fail(ErrorCode::kType, "[", op, "] gradient ", i, " is ", dtype_name(gradient.dtype()),
         ", output ", i, " is ", dtype_name(output.dtype()));
  }
  fit_gradient_slow(&gradient, info, absl::StrCat(op, ", gradient ", i));
  return gradient;
}

[[noreturn]] void fail_constant(const char* op, size_t i, const Tensor& output) {
  if (!is_differentiable(output.dtype())) {
    fail(ErrorCode::kType, "[", op, "] output ", i, " is ", dtype_name(output.dtype()),
         ": only floating and complex types have gradients");
  }
  fail(ErrorCode::kValue, "[", op, "] output ", i,
       " does not require grad: no tensor that it was computed from does, or it was detached or "
       "computed in no-grad mode. Call requires_grad_() on the inputs before the computation");
}

void add_roots(const char* op, Task* task, TensorList outputs, TensorList grad_outputs) {
  if (outputs.empty()) fail(ErrorCode::kValue, "[", op, "] no outputs were given");
  if (!grad_outputs.empty() && grad_outputs.size() != outputs.size()) {
    fail(ErrorCode::kValue, "[", op, "] ", grad_outputs.size(), " gradients for ", outputs.size(),
         " outputs");
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    if (!output.defined()) fail(ErrorCode::kValue, "[", op, "] output ", i, " is undefined");
    const Edge edge = edge_of(output.impl());
    if (edge.node == nullptr) fail_constant(op, i, output);
    task->add_root(
        edge, first_gradient(op, i, output, grad_outputs.empty() ? Tensor() : grad_outputs[i]));
  }
}

Edge input_edge(const char* op, size_t i, const Tensor& input) {
  if (!input.defined()) fail(ErrorCode::kValue, "[", op, "] input ", i, " is undefined");
  const Edge edge = edge_of(input.impl());
  if (edge.node == nullptr) {
    fail(ErrorCode::kValue, "[", op, "] input ", i,
         " does not require grad: call requires_grad_() on it before the outputs are computed");
  }
  return edge;
}

}  // namespace

void backward(TensorList outputs, TensorList grad_outputs, std::optional<bool> retain_graph,
              bool create_graph, TensorList inputs) {
  if (batch::inside()) {
    fail(ErrorCode::kUnsupported,
         "[backward] inside vmap: the gradients of the examples differ, and cannot all be the grad "
         "of one tensor: use grad or vjp, which return them");
  }
  Task task({retain_graph.value_or(false) || create_graph, create_graph});
  add_roots("backward", &task, outputs, grad_outputs);
  std::vector<std::pair<size_t, int32_t>> captures;  // inputs that are not leaves
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Edge edge = input_edge("backward", i, inputs[i]);
    if (NodeAccess::is_leaf(edge.node)) {
      task.accumulate(edge);
    } else {
      captures.emplace_back(i, task.capture(edge));
    }
  }
  run_task(task);
  for (const auto& [i, capture] : captures) {
    Tensor& gradient = task.captured(capture);
    if (!gradient.defined()) continue;
    TensorImpl* impl = inputs[i].impl();
    accumulate_grad(impl, &make_meta(impl).grad, std::move(gradient));
  }
}

std::vector<Tensor> grad(TensorList outputs, TensorList inputs, TensorList grad_outputs,
                         const GradOptions& options) {
  if (inputs.empty()) fail(ErrorCode::kValue, "[grad] no inputs were given");
  Task task({options.retain_graph || options.create_graph, options.create_graph});
  add_roots("grad", &task, outputs, grad_outputs);
  for (size_t i = 0; i < inputs.size(); ++i) task.capture(input_edge("grad", i, inputs[i]));
  run_task(task);
  std::vector<Tensor> gradients;
  gradients.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    gradients.push_back(std::move(task.captured(static_cast<int32_t>(i))));
    Tensor& gradient = gradients.back();
    if (gradient.defined()) continue;
    const Tensor& input = inputs[i];
    if (options.materialize_grads) {
      gradient = op::zeros(input.sizes(), input.dtype(), input.device());
    } else if (!options.allow_unused) {
      fail(ErrorCode::kValue, "[grad] no output depends on input ", i, ", a ",
           dtype_name(input.dtype()), " tensor of shape ", shape_str(input.sizes()),
           ": set allow_unused = true to get an undefined gradient, or materialize_grads = true to "
           "get zeros");
    }
  }
  return gradients;
}

std::vector<Tensor> partial_gradients(TensorList outputs, TensorList inputs,
                                      TensorList grad_outputs) {
  Task task({.retain_graph = true, .ends_at_captures = true});
  add_roots("grad", &task, outputs, grad_outputs);
  for (size_t i = 0; i < inputs.size(); ++i) task.capture(input_edge("grad", i, inputs[i]));
  run_task(task);
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < inputs.size(); ++i) {
    gradients.push_back(std::move(task.captured(static_cast<int32_t>(i))));
  }
  return gradients;
}

SplitBackward::SplitBackward(TensorList outputs, TensorList inputs, TensorList grad_outputs)
    : parked_(std::make_shared<Parked>()) {
  if (batch::inside()) {
    fail(ErrorCode::kUnsupported,
         "[SplitBackward] inside vmap: the gradients of the examples differ, and cannot all be the "
         "grad of one tensor: use grad or vjp, which return them");
  }
  Task task({.parks = parked_.get()});
  add_roots("SplitBackward", &task, outputs, grad_outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Edge edge = input_edge("SplitBackward", i, inputs[i]);
    if (!NodeAccess::is_leaf(edge.node)) {
      fail(ErrorCode::kValue, "[SplitBackward] input ", i, " was made by ", edge.node->name(),
           ": give leaves, such as x.detach().requires_grad_() that the outputs are computed from");
    }
    task.capture(edge);
  }
  run_task(task);
  for (size_t i = 0; i < inputs.size(); ++i) {
    gradients_.push_back(std::move(task.captured(static_cast<int32_t>(i))));
  }
}

void SplitBackward::accumulate() {
  if (parked_ == nullptr) return;
  Parked parked = std::move(*parked_);  // copies of this object have nothing left, either
  *parked_ = Parked();
  Task task({});
  task.resume(parked);
  run_task(task);
}

std::vector<Tensor> grad(TensorList outputs, TensorList inputs, TensorList grad_outputs,
                         std::optional<bool> retain_graph, bool create_graph, bool allow_unused) {
  return grad(outputs, inputs, grad_outputs,
              GradOptions{.retain_graph = retain_graph.value_or(create_graph),
                          .create_graph = create_graph,
                          .allow_unused = allow_unused});
}

}  // namespace mytorch::autograd
