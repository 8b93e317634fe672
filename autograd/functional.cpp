#include "mytorch/autograd/functional.h"

#include <algorithm>

#include "autograd/operators.h"
#include "autograd/vmap/batched.h"
#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/record.h"
#include "mytorch/autograd/vmap.h"
#include "mytorch/ops/eye.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/view.h"

namespace mytorch::autograd::functional {
namespace {

Tensor zeros_like(const Tensor& t) { return op::zeros(t.sizes(), t.dtype(), t.device()); }

// Returns a tensor with the values of an input, which requires gradients. Part of the graph of the
// input if `connected`.
Tensor variable(const Tensor& input, bool connected) {
  const bool batched = batch::is_batched_here(input);
  if (connected && requires_grad(input) && (batched || !batch::inside())) {
    return mytorch::view(input, input.sizes());
  }
  if (!batch::inside()) return input.detach().requires_grad_();
  // A batched tensor has a history of its own, beside that of its value.
  return batch::lift(connected ? input : input.detach()).requires_grad_();
}

std::vector<int64_t> joined(IntList first, IntList second) {
  std::vector<int64_t> sizes = first.vec();
  sizes.insert(sizes.end(), second.begin(), second.end());
  return sizes;
}

// One call: a function, the tensors that it receives and its outputs.
class FunctionalCall {
 public:
  // Runs the function. Its inputs are part of the graph of the given ones if create_graph is set.
  FunctionalCall(const char* op, const TensorFunction& f, std::vector<Tensor> given,
                 const FunctionalOptions& options)
      : op_(op), options_(options), inputs_(std::move(given)) {
    if (inputs_.empty()) fail(ErrorCode::kValue, "[", op_, "] no inputs were given");
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Tensor& input = inputs_[i];
      if (!input.defined()) fail(ErrorCode::kValue, "[", op_, "] input ", i, " is undefined");
      if (!is_differentiable(input.dtype())) {
        fail(ErrorCode::kType, "[", op_, "] input ", i, " is ", dtype_name(input.dtype()),
             ": only floating types have derivatives; capture constants in the function instead");
      }
      input = variable(input, options.create_graph);
    }
    outputs_ = f(inputs_);
    if (outputs_.empty()) fail(ErrorCode::kValue, "[", op_, "] the function returned no outputs");
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!outputs_[i].defined()) {
        fail(ErrorCode::kValue, "[", op_, "] output ", i, " of the function is undefined");
      }
    }
  }

  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& outputs() const { return outputs_; }

  void require_one_element() const {
    if (outputs_.size() == 1 && outputs_[0].numel() == 1) return;
    fail(ErrorCode::kShape, "[", op_, "] the function must return one element; it returned ",
         outputs_.size() == 1 ? absl::StrCat("a tensor of shape ", shape_str(outputs_[0].sizes()))
                              : absl::StrCat(outputs_.size(), " tensors"));
  }

  // Returns the vector of a product: the given tensors, which fit `like`, or ones if all are
  // omitted and `like` is a single element.
  std::vector<Tensor> vector_for(const char* what, const std::vector<Tensor>& like,
                                 std::vector<Tensor> v) const {
    const bool omitted =
        std::none_of(v.begin(), v.end(), [](const Tensor& t) { return t.defined(); });
    if (omitted) {
      if (like.size() != 1 || like[0].numel() != 1) {
        fail(ErrorCode::kValue, "[", op_, "] v can be omitted for a single element only; here are ",
             like.size(), " ", what, like.size() == 1 ? "" : "s", ", the first of shape ",
             shape_str(like[0].sizes()));
      }
      return {op::ones(like[0].sizes(), like[0].dtype(), like[0].device())};
    }
    if (v.size() != like.size()) {
      fail(ErrorCode::kValue, "[", op_, "] v has ", v.size(), " tensors for ", like.size(), " ",
           what, like.size() == 1 ? "" : "s");
    }
    for (size_t i = 0; i < v.size(); ++i) {
      if (!v[i].defined()) fail(ErrorCode::kValue, "[", op_, "] v ", i, " is undefined");
      if (!(v[i].sizes() == like[i].sizes())) {
        fail(ErrorCode::kShape, "[", op_, "] v ", i, " has shape ", shape_str(v[i].sizes()), ", ",
             what, " ", i, " has shape ", shape_str(like[i].sizes()));
      }
      if (v[i].dtype() != like[i].dtype()) {
        fail(ErrorCode::kType, "[", op_, "] v ", i, " is ", dtype_name(v[i].dtype()), ", ", what,
             " ", i, " is ", dtype_name(like[i].dtype()));
      }
    }
    return v;
  }

  // Returns the gradients of `of` with respect to `with`; undefined if there is none. Keeps the
  // graph.
  std::vector<Tensor> gradients(const std::vector<Tensor>& of, const std::vector<Tensor>& with,
                                const std::vector<Tensor>& weights, bool create_graph) const {
    std::vector<Tensor> roots;
    std::vector<Tensor> seeds;
    for (size_t i = 0; i < of.size(); ++i) {
      if (!of[i].defined() || !requires_grad(of[i])) continue;
      roots.push_back(of[i]);
      seeds.push_back(weights[i]);
    }
    std::vector<Tensor> found(with.size());
    std::vector<Tensor> wanted;
    for (const Tensor& tensor : with) {
      if (requires_grad(tensor)) wanted.push_back(tensor);
    }
    if (roots.empty() || wanted.empty()) return found;
    const std::vector<Tensor> gradients =
        grad(roots, wanted, seeds,
             {.retain_graph = true, .create_graph = create_graph, .allow_unused = true});
    for (size_t i = 0, next = 0; i < with.size(); ++i) {
      if (requires_grad(with[i])) found[i] = gradients[next++];
    }
    return found;
  }

  // Replaces undefined derivatives by zeros, or throws if the options are strict.
  std::vector<Tensor> complete(std::vector<Tensor> found, const std::vector<Tensor>& like,
                               const char* what) const {
    for (size_t i = 0; i < found.size(); ++i) {
      if (options_.strict) {
        if (!found[i].defined()) {
          fail(ErrorCode::kValue, "[", op_, "] the outputs do not depend on ", what, " ", i,
               ", which strict = true refuses");
        }
        if (options_.create_graph && !requires_grad(found[i])) {
          fail(ErrorCode::kValue, "[", op_, "] the derivative for ", what, " ", i,
               " is constant, so it has no graph, which strict = true refuses with create_graph");
        }
      }
      if (!found[i].defined()) found[i] = zeros_like(like[i]);
    }
    return found;
  }

  std::vector<Tensor> result(std::vector<Tensor> tensors) const {
    if (!options_.create_graph) {
      for (Tensor& tensor : tensors) tensor = tensor.detach();
    }
    return tensors;
  }
  Products products(std::vector<Tensor> found) const {
    return {result(outputs_), result(std::move(found))};
  }

  // Returns the gradients of the only output, part of the graph.
  std::vector<Tensor> gradient() const {
    const Tensor one = op::ones(outputs_[0].sizes(), outputs_[0].dtype(), outputs_[0].device());
    std::vector<Tensor> found = gradients(outputs_, inputs_, {one}, /*create_graph=*/true);
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].defined()) continue;
      if (options_.strict) {
        fail(ErrorCode::kValue, "[", op_, "] the output does not depend on input ", i,
             ", which strict = true refuses");
      }
      found[i] = zeros_like(inputs_[i]);
    }
    return found;
  }

  // Returns the derivatives of each of `of` with respect to the inputs.
  Blocks blocks(const std::vector<Tensor>& of) const {
    Blocks all;
    for (size_t k = 0; k < of.size(); ++k) {
      const Tensor& output = of[k];
      Rows rows;
      rows.stacked.resize(inputs_.size());
      rows.missing.assign(inputs_.size(), true);
      if (output.numel() > 0 && requires_grad(output)) {
        rows = options_.vectorize ? rows_at_once(output) : rows_in_turn(output);
      }
      std::vector<Tensor> found;
      for (size_t i = 0; i < inputs_.size(); ++i) found.push_back(block(k, i, output, rows));
      all.push_back(result(std::move(found)));
    }
    return all;
  }

 private:
  // The derivatives of the elements of an output, stacked, for each input.
  struct Rows {
    std::vector<Tensor> stacked;
    std::vector<bool> missing;  // the output does not depend on the input
  };

  // Returns the gradients for one weight of the output; zeros, noted as missing, if there is none.
  std::vector<Tensor> row(const Tensor& output, const Tensor& seed,
                          std::vector<bool>* missing) const {
    std::vector<Tensor> found = gradients({output}, inputs_, {seed}, options_.create_graph);
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].defined()) continue;
      (*missing)[i] = true;
      found[i] = zeros_like(inputs_[i]);
    }
    return found;
  }

  Rows rows_in_turn(const Tensor& output) const {
    Rows rows{{}, std::vector<bool>(inputs_.size(), false)};
    std::vector<std::vector<Tensor>> columns(inputs_.size());
    for (int64_t e = 0; e < output.numel(); ++e) {
      Tensor seed = op::zeros(IntList(output.numel()), output.dtype(), output.device());
      mytorch::fill_(mytorch::narrow(seed, 0, e, 1), 1);
      std::vector<Tensor> found = row(output, mytorch::view(seed, output.sizes()), &rows.missing);
      for (size_t i = 0; i < found.size(); ++i) columns[i].push_back(std::move(found[i]));
    }
    for (const std::vector<Tensor>& column : columns)
      rows.stacked.push_back(mytorch::stack(column));
    return rows;
  }

  Rows rows_at_once(const Tensor& output) const {
    Rows rows{{}, std::vector<bool>(inputs_.size(), false)};
    const Tensor one = mytorch::eye(output.numel(), output.dtype(), output.device());
    const Tensor seeds = mytorch::view(one, joined(IntList(output.numel()), output.sizes()));
    rows.stacked =
        vmap([&](const std::vector<Tensor>& seed) { return row(output, seed[0], &rows.missing); },
             {seeds}, 0, 0, {});
    return rows;
  }

  Tensor block(size_t k, size_t i, const Tensor& output, const Rows& rows) const {
    const Tensor& input = inputs_[i];
    if (rows.missing[i] && options_.strict && output.numel() > 0) {
      fail(ErrorCode::kValue, "[", op_, "] output ", k, " does not depend on input ", i,
           ", which strict = true refuses");
    }
    const std::vector<int64_t> sizes = joined(output.sizes(), input.sizes());
    if (!rows.stacked[i].defined()) return op::zeros(sizes, input.dtype(), input.device());
    Tensor found = mytorch::reshape(rows.stacked[i], sizes);
    if (options_.strict && options_.create_graph && !requires_grad(found)) {
      fail(ErrorCode::kValue, "[", op_, "] the derivative of output ", k, " for input ", i,
           " is constant, so it has no graph, which strict = true refuses with create_graph");
    }
    return found;
  }

  const char* op_;
  FunctionalOptions options_;
  EnableGradGuard grad_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
};

// Returns tensors that stand for the weights of a gradient, in order to differentiate with respect
// to them: a gradient is linear in its weights.
std::vector<Tensor> variables_like(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> variables;
  for (const Tensor& tensor : tensors) {
    const Tensor zeros = batch::lift(zeros_like(tensor));
    variables.push_back(is_differentiable(tensor.dtype()) ? zeros.requires_grad_() : zeros);
  }
  return variables;
}

}  // namespace

Products vjp(const TensorFunction& f, std::vector<Tensor> inputs, const std::vector<Tensor>& v,
             const FunctionalOptions& options) {
  const FunctionalCall call("vjp", f, std::move(inputs), options);
  const std::vector<Tensor> weights = call.vector_for("output", call.outputs(), v);
  return call.products(
      call.complete(call.gradients(call.outputs(), call.inputs(), weights, options.create_graph),
                    call.inputs(), "input"));
}

Products jvp(const TensorFunction& f, std::vector<Tensor> inputs, const std::vector<Tensor>& v,
             const FunctionalOptions& options) {
  const FunctionalCall call("jvp", f, std::move(inputs), options);
  const std::vector<Tensor> direction = call.vector_for("input", call.inputs(), v);
  const std::vector<Tensor> weights = variables_like(call.outputs());
  const std::vector<Tensor> gradients =
      call.gradients(call.outputs(), call.inputs(), weights, /*create_graph=*/true);
  return call.products(
      call.complete(call.gradients(gradients, weights, direction, options.create_graph),
                    call.outputs(), "output"));
}

Blocks jacobian(const TensorFunction& f, std::vector<Tensor> inputs,
                const FunctionalOptions& options) {
  const FunctionalCall call("jacobian", f, std::move(inputs), options);
  return call.blocks(call.outputs());
}

Blocks hessian(const TensorFunction& f, std::vector<Tensor> inputs,
               const FunctionalOptions& options) {
  const FunctionalCall call("hessian", f, std::move(inputs), options);
  call.require_one_element();
  return call.blocks(call.gradient());
}

Products vhp(const TensorFunction& f, std::vector<Tensor> inputs, const std::vector<Tensor>& v,
             const FunctionalOptions& options) {
  const FunctionalCall call("vhp", f, std::move(inputs), options);
  call.require_one_element();
  const std::vector<Tensor> direction = call.vector_for("input", call.inputs(), v);
  return call.products(
      call.complete(call.gradients(call.gradient(), call.inputs(), direction, options.create_graph),
                    call.inputs(), "input"));
}

Products hvp(const TensorFunction& f, std::vector<Tensor> inputs, const std::vector<Tensor>& v,
             const FunctionalOptions& options) {
  const FunctionalCall call("hvp", f, std::move(inputs), options);
  call.require_one_element();
  const std::vector<Tensor> direction = call.vector_for("input", call.inputs(), v);
  const std::vector<Tensor> weights = variables_like(call.inputs());
  const std::vector<Tensor> product =
      call.gradients(call.gradient(), call.inputs(), weights, /*create_graph=*/true);
  return call.products(call.complete(
      call.gradients(product, weights, direction, options.create_graph), call.inputs(), "input"));
}

void fail_inputs(size_t given, size_t taken) {
  fail(ErrorCode::kValue, "[autograd] ", given, " inputs were given to a function of ", taken);
}

}  // namespace mytorch::autograd::functional
