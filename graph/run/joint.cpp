#include "graph/run/joint.h"

#include <algorithm>
#include <any>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "autograd/leaves.h"
#include "core/types/errors.h"
#include "graph/passes/passes.h"
#include "graph/passes/recomputation.h"
#include "graph/run/check_mode.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/function.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops.h"
#include "ops/creation.h"

namespace mytorch::graph {
namespace {

// Also a leaf, such as an argument that is returned as it came, unless gradients are off.
bool is_differentiable(const Tensor& result) {
  return result.defined() && mytorch::is_differentiable(result.dtype()) && result.requires_grad() &&
         (!result.is_leaf() || grad_enabled());
}

// Returns memory like a result, for its gradient; dense, where the result has gaps or overlaps.
Tensor gradient_for(const Tensor& result) {
  const LayerMask masked(~0u);
  return empty_strided(result.sizes(), as_list(packed_like(result.sizes(), result.strides())),
                       TensorOptions(result.dtype()).device(result.device()));
}

}  // namespace

bool Joint::has_history(const std::vector<Tensor>& results) {
  return std::any_of(results.begin(), results.end(), is_differentiable);
}

// Divides a graph behind its first nodes.
struct Joint::Splitter {
  Splitter(Joint* joint, Recorded all, size_t forward_nodes, size_t arguments)
      : to(*joint), from(std::move(all)), nodes(forward_nodes), num_arguments(arguments) {}

  void run() {
    const Graph& graph = from.graph;
    made_in_forward.resize(graph.buffers.size());
    for (size_t i = 0; i < nodes; ++i) {
      const auto made = [&](ValueId id) { made_in_forward[buffer_of(id)] = true; };
      graph.nodes[i].for_each_result(made);
      graph.nodes[i].for_each_written(made);
    }
    to.forward_ = from;
    Graph& forward = to.forward_.graph;
    forward.nodes.resize(nodes);
    forward.arguments.resize(num_arguments);
    forward.results.resize(to.num_results_);
    to.backward_ = from;
    to.backward_.entry_grads.clear();
    to.backward_.states.clear();  // they are conditions and effects of the function
    Graph& backward = to.backward_.graph;
    backward.nodes.erase(backward.nodes.begin(),
                         backward.nodes.begin() + static_cast<std::ptrdiff_t>(nodes));
    backward.grads.clear();
    backward.results.erase(backward.results.begin(),
                           backward.results.begin() + static_cast<std::ptrdiff_t>(to.num_results_));
    // What the other half alone uses is no argument of a half.
    hide(&forward, num_arguments);
    find_reads();
    choose_arguments();
  }

 private:
  size_t buffer_of(ValueId id) const { return static_cast<size_t>(from.graph.values[id].buffer); }

  // Turns the arguments from `begin` on into memory that no node touches.
  static void hide(Graph* graph, size_t begin) {
    for (GraphBuffer& buffer : graph->buffers) {
      if (buffer.origin == BufferOrigin::kArgument && buffer.index >= static_cast<int32_t>(begin)) {
        buffer = {BufferOrigin::kInside, -1, {}, buffer.device, buffer.bytes};
      }
    }
  }

  // Finds the values that backward reads and did not make.
  void find_reads() {
    const Graph& backward = to.backward_.graph;
    reads_buffer.resize(from.graph.buffers.size());
    std::vector<bool> written(from.graph.buffers.size());  // by backward itself
    for (const GraphNode& node : backward.nodes) {
      node.for_each_written([&](ValueId id) { written[buffer_of(id)] = true; });
    }
    std::vector<bool> seen(from.graph.values.size());
    const auto read = [&](ValueId id) {
      if (id == kNoValue || seen[static_cast<size_t>(id)]) return;
      seen[static_cast<size_t>(id)] = true;
      const size_t buffer = buffer_of(id);
      if (!reads_buffer[buffer] && !written[buffer] &&
          from.graph.buffers[buffer].origin == BufferOrigin::kOutside) {
        to.saved_outside_.push_back(from.graph.buffers[buffer].index);
      }
      reads_buffer[buffer] = true;
      if (from.graph.buffers[buffer].origin == BufferOrigin::kInside && made_in_forward[buffer]) {
        saved.push_back(id);
      }
    };
    for (const GraphNode& node : backward.nodes) node.for_each_operand(read);
    for (const ValueId id : backward.results) read(id);
  }

  // Makes the arguments of backward: those of the function that it reads, gradients, saved values.
  void choose_arguments() {
    Graph& backward = to.backward_.graph;
    const std::vector<ValueId> all = std::exchange(backward.arguments, {});
    std::vector<int32_t> place(all.size(), -1);
    const auto take = [&](size_t i) {
      const size_t buffer = buffer_of(all[i]);
      if (!reads_buffer[buffer]) return false;
      place[i] = static_cast<int32_t>(backward.arguments.size());
      backward.arguments.push_back(all[i]);
      return true;
    };
    for (size_t i = 0; i < num_arguments; ++i) {
      if (take(i)) to.saved_arguments_.push_back(static_cast<int32_t>(i));
    }
    std::vector<size_t> gradients = std::exchange(to.gradients_, {});
    for (size_t i = num_arguments; i < all.size(); ++i) {
      if (!take(i)) continue;
      to.gradients_.push_back(gradients[i - num_arguments]);
      to.gradient_values_.push_back(all[i]);
    }
    for (GraphBuffer& buffer : backward.buffers) {
      if (buffer.origin != BufferOrigin::kArgument) continue;
      buffer.index = place[static_cast<size_t>(buffer.index)];
      if (buffer.index < 0) buffer.origin = BufferOrigin::kInside;
    }
    for (const ValueId id : saved) {
      GraphBuffer& buffer = backward.buffers[buffer_of(id)];
      if (buffer.origin == BufferOrigin::kInside) {
        buffer.origin = BufferOrigin::kArgument;
        buffer.index = static_cast<int32_t>(backward.arguments.size());
      }
      backward.arguments.push_back(id);
      to.forward_.graph.results.push_back(id);
    }
  }

  Joint& to;
  const Recorded from;
  const size_t nodes;
  const size_t num_arguments;
  std::vector<bool> made_in_forward, reads_buffer;  // by buffer
  std::vector<ValueId> saved;
};

Joint::Joint(OperatorCapture* capture, const std::vector<Tensor>& arguments,
             const std::vector<Tensor>& results, const PassOptions& options)
    : num_results_(results.size()), options_(options) {
  const size_t nodes = capture->size();
  std::vector<Tensor> outputs, gradients, inputs;
  for (size_t i = 0; i < results.size(); ++i) {
    differentiable_.push_back(is_differentiable(results[i]));
    if (!differentiable_.back()) continue;
    outputs.push_back(results[i]);
    gradients.push_back(gradient_for(results[i]));
    capture->add_argument(gradients.back());
    gradients_.push_back(i);
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].requires_grad()) continue;
    // All of the gradient of a tensor that is several arguments goes to the first of them.
    const auto same = [&](const Tensor& other) { return other.is_same(arguments[i]); };
    if (std::any_of(inputs.begin(), inputs.end(), same)) continue;
    inputs_.push_back(static_cast<int32_t>(i));
    inputs.push_back(arguments[i]);
  }
  leaves_ = autograd::leaves_of(outputs, inputs);
  inputs.insert(inputs.end(), leaves_.begin(), leaves_.end());
  // attach() connects the inputs with what is behind them, and with their hooks.
  const std::vector<Tensor> found = autograd::partial_gradients(outputs, inputs, gradients);
  std::vector<Tensor> all = results;
  all.insert(all.end(), found.begin(), found.end());
  Recorded recorded = capture->finish(all);
  recompute_behind(&recorded.graph, nodes, options_, &rewritten_);
  Splitter(this, std::move(recorded), nodes, arguments.size()).run();
  run_passes(&forward_);
  run_passes(&backward_);
}

std::shared_ptr<Joint> Joint::at_other_sizes(Recorded forward, Recorded backward) const {
  std::shared_ptr<Joint> made(new Joint(options_));
  made->num_results_ = num_results_;
  made->differentiable_ = differentiable_;
  made->leaves_ = leaves_;
  made->inputs_ = inputs_;
  made->forward_ = std::move(forward);
  made->backward_ = std::move(backward);
  made->saved_arguments_ = saved_arguments_;
  made->saved_outside_ = saved_outside_;
  made->gradients_ = gradients_;
  made->gradient_values_ = gradient_values_;
  return made;
}

std::vector<Tensor> Joint::backward_arguments(const std::vector<Tensor>& saved,
                                              const std::vector<Tensor>& gradients) const {
  // The arguments of the function, then gradients, then values: as in choose_arguments().
  std::vector<Tensor> arguments(
      saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(saved_arguments_.size()));
  const NoGradGuard no_grad;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const ValueInfo& info = backward_.graph.values[gradient_values_[i]];
    Tensor gradient = gradients[gradients_[i]];
    // Gradients may come in any layout, or share memory with others.
    if (!(gradient.strides() == as_list(info.strides)) ||
        reinterpret_cast<uintptr_t>(gradient.raw_data()) % 64 != 0) {
      Tensor copy = empty_strided(as_list(info.sizes), as_list(info.strides),
                                  TensorOptions(info.dtype).device(gradient.device()));
      copy.copy_(gradient);
      gradient = copy;
    }
    arguments.push_back(std::move(gradient));
  }
  arguments.insert(arguments.end(),
                   saved.begin() + static_cast<std::ptrdiff_t>(saved_arguments_.size()),
                   saved.end() - static_cast<std::ptrdiff_t>(saved_outside_.size()));
  return arguments;
}

std::vector<Tensor> Joint::backward(const std::vector<Tensor>& arguments) {
  const NoGradGuard no_grad;
  if (plan_ != nullptr) return plan_->run(arguments);
  std::vector<Tensor> results;
  planned_ = optimized(backward_, options_, &rewritten_);
  plan_ = std::make_unique<ReplayPlan>(planned_, options_.mode, arguments, &results);
  return results;
}

std::vector<Tensor> Joint::run_backward(autograd::FunctionContext* context,
                                        const std::vector<Tensor>& gradients) {
  const auto joint = std::any_cast<std::shared_ptr<Joint>>(context->saved_data.at("joint"));
  const auto arguments = std::any_cast<size_t>(context->saved_data.at("arguments"));
  std::vector<Tensor> found =
      joint->backward(joint->backward_arguments(context->saved_tensors(), gradients));
  // One for each argument of the call: the function's, then the leaves.
  std::vector<Tensor> all(arguments);
  for (size_t i = 0; i < joint->inputs_.size(); ++i) {
    all[static_cast<size_t>(joint->inputs_[i])] = found[i];
  }
  all.insert(all.end(), found.begin() + static_cast<std::ptrdiff_t>(joint->inputs_.size()),
             found.end());
  return all;
}

// What the function itself has made of a call.
struct Joint::FunctionHistory {
  std::vector<Tensor> outputs;  // the results with history
  std::vector<Tensor> inputs;   // that require gradients: arguments, then the joint's leaves
  size_t num_arguments = 0;     // of the call
  std::vector<Tensor> leaves;   // that are none of the joint's: the function has made them
};

std::vector<Tensor> Joint::run_backward_beside(autograd::FunctionContext* context,
                                               const std::vector<Tensor>& gradients) {
  const auto joint = std::any_cast<std::shared_ptr<Joint>>(context->saved_data.at("joint"));
  const auto beside =
      std::any_cast<std::shared_ptr<FunctionHistory>>(context->saved_data.at("beside"));
  const std::vector<Tensor> arguments =
      joint->backward_arguments(context->saved_tensors(), gradients);
  std::vector<Tensor> weights;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (joint->differentiable_[i]) weights.push_back(gradients[i]);
  }
  std::vector<Tensor> inputs = beside->inputs;
  inputs.insert(inputs.end(), beside->leaves.begin(), beside->leaves.end());
  // Leaves that the function makes are others in each call, and their gradients nobody's.
  const auto compared = [&](std::vector<Tensor> found) {
    for (size_t i = 0; i < joint->leaves_.size(); ++i) {
      if (!joint->captures(joint->leaves_[i])) found[joint->inputs_.size() + i] = {};
    }
    return found;
  };
  std::vector<Tensor> of_leaves;  // that this call has made
  const auto function = [&] {
    std::vector<Tensor> found = autograd::partial_gradients(beside->outputs, inputs, weights);
    const auto end = found.begin() + static_cast<std::ptrdiff_t>(beside->inputs.size());
    of_leaves.assign(end, found.end());
    found.erase(end, found.end());
    return compared(std::move(found));
  };
  std::vector<std::string> names;
  for (const int32_t input : joint->inputs_) {
    names.push_back(absl::StrCat("the gradient of argument ", input));
  }
  for (const Tensor& leaf : joint->leaves_) {
    names.push_back(absl::StrCat("the gradient of a leaf of shape ", shape_str(leaf.sizes())));
  }
  const std::vector<Tensor> found = run_beside(
      {joint->backward_, arguments, joint->options_.mode,
       [&] { return compared(joint->backward(arguments)); }, function, std::move(names)});
  std::vector<Tensor> all(beside->num_arguments);
  for (size_t i = 0; i < joint->inputs_.size(); ++i) {
    all[static_cast<size_t>(joint->inputs_[i])] = found[i];
  }
  all.insert(all.end(), found.begin() + static_cast<std::ptrdiff_t>(joint->inputs_.size()),
             found.end());
  all.insert(all.end(), of_leaves.begin(), of_leaves.end());
  return all;
}

// Gives results a history, which saves `values` for backward.
void Joint::connect(const std::shared_ptr<Joint>& joint, const std::vector<Tensor>& arguments,
                    const std::vector<Tensor>& values,
                    const std::shared_ptr<FunctionHistory>& beside, std::vector<Tensor>* results) {
  std::vector<Tensor> saved;
  for (const int32_t i : joint->saved_arguments_) {
    saved.push_back(arguments[static_cast<size_t>(i)]);
  }
  saved.insert(saved.end(), values.begin(), values.end());
  // Backward reads these where they are. Saving them tells whether they are still as they were.
  for (const int32_t i : joint->saved_outside_) {
    saved.push_back(joint->backward_.outside[static_cast<size_t>(i)]);
  }
  // A tensor that is several results has a history once.
  for (size_t i = 0; i < results->size(); ++i) {
    const auto same = [&](const Tensor& other) { return other.is_same((*results)[i]); };
    if ((*results)[i].defined() &&
        std::any_of(results->begin(), results->begin() + static_cast<std::ptrdiff_t>(i), same)) {
      (*results)[i] = (*results)[i].detach();
    }
  }
  autograd::FunctionCall call("CompiledBackward",
                              beside == nullptr ? &run_backward : &run_backward_beside);
  for (const Tensor& argument : arguments) call.add(argument);
  for (const Tensor& leaf : joint->leaves_) call.add(leaf);
  if (beside != nullptr) {
    for (const Tensor& leaf : beside->leaves) call.add(leaf);
  }
  autograd::FunctionContext* context = call.begin();
  context->saved_data["joint"] = joint;
  context->saved_data["arguments"] = arguments.size();
  if (beside != nullptr) context->saved_data["beside"] = beside;
  context->mark_once_differentiable(
      "second derivatives through a compiled function are not recorded: take both derivatives "
      "inside of the function that is compiled");
  std::vector<Tensor> constant;
  for (size_t i = 0; i < results->size(); ++i) {
    if (!joint->differentiable_[i] && (*results)[i].defined()) constant.push_back((*results)[i]);
  }
  context->mark_non_differentiable(std::move(constant));
  context->save_for_backward(std::move(saved));
  call.finish(results);
}

void Joint::attach(const std::shared_ptr<Joint>& joint, const std::vector<Tensor>& arguments,
                   std::vector<Tensor>* results) {
  const std::vector<Tensor> values(
      results->begin() + static_cast<std::ptrdiff_t>(joint->num_results_), results->end());
  results->resize(joint->num_results_);
  connect(joint, arguments, values, nullptr, results);
}

// Returns whether a leaf comes from outside of the function, which did not make it.
bool Joint::captures(const Tensor& leaf) const {
  const auto same = [&](const Tensor& each) { return each.is_same(leaf); };
  return std::any_of(forward_.outside.begin(), forward_.outside.end(), same);
}

void Joint::attach_beside(const std::shared_ptr<Joint>& joint, const std::vector<Tensor>& arguments,
                          const std::vector<Tensor>& values, std::vector<Tensor>* results) {
  auto beside = std::make_shared<FunctionHistory>();
  beside->num_arguments = arguments.size();
  for (const int32_t i : joint->inputs_) {
    beside->inputs.push_back(arguments[static_cast<size_t>(i)]);
  }
  for (size_t i = 0; i < results->size(); ++i) {
    Tensor& result = (*results)[i];
    if (is_differentiable(result) != joint->differentiable_[i]) {
      fail(ErrorCode::kInternal, "[compile] result ", i, " of the compiled function has ",
           joint->differentiable_[i] ? "a history, and that of the function none"
                                     : "no history, and that of the function one");
    }
    if (!joint->differentiable_[i]) continue;
    beside->outputs.push_back(result);
    result = result.detach();
  }
  const std::vector<Tensor> leaves = autograd::leaves_of(beside->outputs, beside->inputs);
  const auto is_among = [](const Tensor& leaf, const std::vector<Tensor>& list) {
    return std::any_of(list.begin(), list.end(),
                       [&](const Tensor& each) { return each.is_same(leaf); });
  };
  for (const Tensor& leaf : joint->leaves_) {
    if (joint->captures(leaf) && !is_among(leaf, leaves)) {
      fail(ErrorCode::kInternal, "[compile] the compiled function depends on a leaf of shape ",
           shape_str(leaf.sizes()), ", and the function does not any more");
    }
    beside->inputs.push_back(leaf);
  }
  for (const Tensor& leaf : leaves) {
    if (!is_among(leaf, joint->leaves_)) beside->leaves.push_back(leaf);
  }
  connect(joint, arguments, values, beside, results);
}

}  // namespace mytorch::graph
