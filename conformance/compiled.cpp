// Checks of compiled functions.
#include <algorithm>
#include <cmath>
#include <optional>

#include "conformance/check.h"
#include "conformance/compare.h"
#include "conformance/elements.h"
#include "graph/capture/capture.h"
#include "graph/formats/saved.h"
#include "graph/run/closeness.h"
#include "graph/run/same_bits.h"
#include "mytorch/autograd.h"
#include "mytorch/compile.h"
#include "mytorch/error.h"
#include "mytorch/generator.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/view_as_real.h"
#include "mytorch/program.h"

namespace mytorch::conformance {
namespace {

// The tensors among arguments, in order.
std::vector<Tensor> flat_tensors(const Arguments& arguments) {
  std::vector<Tensor> found;
  for (const auto& [name, value] : arguments.values) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      if (tensor->defined()) found.push_back(*tensor);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      for (const Tensor& each : *list) {
        if (each.defined()) found.push_back(each);
      }
    }
  }
  return found;
}

// The arguments with other tensors.
Arguments with_tensors(Arguments arguments, const std::vector<Tensor>& tensors) {
  size_t next = 0;
  for (auto& [name, value] : arguments.values) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      if (tensor->defined()) value = tensors[next++];
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      std::vector<Tensor> replaced;
      for (const Tensor& each : *list) replaced.push_back(each.defined() ? tensors[next++] : each);
      value = std::move(replaced);
    }
  }
  return arguments;
}

std::vector<Tensor> flat(const std::vector<Value>& values) {
  std::vector<Tensor> found;
  for (const Value& value : values) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      if (tensor->defined()) found.push_back(tensor->detach());
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      for (const Tensor& each : *list) {
        if (each.defined()) found.push_back(each.detach());
      }
    }
  }
  return found;
}

// Calls the operator; with `gradients`, as a function of new leaves, whose grads follow the
// results.
std::vector<Tensor> call_flat(const Case& c, const Arguments& arguments,
                              const std::vector<Tensor>& tensors, bool gradients) {
  if (!gradients) return flat(call_named(c.op->name, with_tensors(arguments, tensors)));
  std::vector<Tensor> leaves = tensors;
  for (Tensor& leaf : leaves) {
    if (is_differentiable(leaf.dtype())) leaf = leaf.detach().requires_grad_();
  }
  const std::vector<Value> results = call_named(c.op->name, with_tensors(arguments, leaves));
  Tensor total;
  std::vector<Tensor> found = flat(results);
  for (const Value& value : results) {
    std::vector<Tensor> each;
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) each = {*tensor};
    if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) each = *list;
    for (const Tensor& result : each) {
      if (!result.defined() || !result.requires_grad()) continue;
      Tensor part = sum(result.is_complex() ? view_as_real(result) : result);
      total = total.defined() ? total + part : part;
    }
  }
  if (!total.defined()) return found;
  total.backward();
  for (const Tensor& leaf : leaves) {
    if (leaf.requires_grad() && leaf.grad().defined()) found.push_back(leaf.grad());
  }
  return found;
}

// The arguments with generators of their own, equally seeded, from which several calls draw one
// after the other.
Arguments with_own_generators(Arguments arguments) {
  for (auto& [name, value] : arguments.values) {
    const auto* given = std::get_if<Generator>(&value.variant());
    if (given == nullptr) continue;
    Generator own(given->seed());
    own.set_call(given->call());
    value = own;
  }
  return arguments;
}

// `has_values` is false for operators that leave the values of their results open.
std::string first_difference(const std::vector<Tensor>& found, const std::vector<Tensor>& expected,
                             bool gradients = false, bool has_values = true) {
  if (found.size() != expected.size()) {
    return std::to_string(found.size()) + " tensors instead of " + std::to_string(expected.size());
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const Tensor &a = found[i], &b = expected[i];
    // A sum of gradients has the layout of the one to which the others were added.
    const bool same_layout = gradients || same_strides(a, b);
    if (a.dtype() != b.dtype() || !(a.sizes() == b.sizes()) || !same_layout) {
      return "tensor " + std::to_string(i) + " has another type, shape or strides";
    }
    if (has_values && !graph::same_bits(a, b)) {
      return "tensor " + std::to_string(i) + " has other bits";
    }
  }
  return "";
}

// Compares a program, as a file holds it, with the function: read back from its text, then run.
// Returns what differs, or "".
std::string check_saved(const Case& c, const Arguments& arguments, bool gradients) {
  const std::vector<Tensor> tensors = flat_tensors(copy_of(arguments));
  std::optional<Program> program;
  try {
    graph::OperatorCapture capture(tensors);
    const std::vector<Tensor> results = call_flat(c, arguments, tensors, gradients);
    const graph::Recorded recorded = capture.finish(results);
    program.emplace(graph::to_saved(recorded, {}), CompileMode::kExact);
    const std::string text = to_text(recorded.graph);
    if (program->text() != text) return "reads back as\n" + program->text() + "from\n" + text;
  } catch (const Error& error) {
    // A generator or a group of this process is in no file.
    if (error.code() == ErrorCode::kUnsupported) return "";
    return std::string("cannot be saved: ") + error.what();
  }
  constexpr int kRuns = 3;  // checked, planned and replayed
  for (int i = 0; i < kRuns; ++i) {
    const Arguments eager = copy_of(arguments), own = copy_of(arguments);
    const std::vector<Tensor> expected = call_flat(c, arguments, flat_tensors(eager), gradients);
    std::string what;
    try {
      what = first_difference(program->run(flat_tensors(own)), expected, gradients,
                              !c.op->unspecified());
    } catch (const Error& error) {
      what = error.what();
    }
    if (what.empty()) what = first_difference(flat_tensors(own), flat_tensors(eager));
    if (!what.empty()) return "run " + std::to_string(i) + ": " + what + "\n" + program->text();
  }
  return "";
}

// Returns what is less close than another order of sums explains, or "". `coarsest` is the epsilon
// of a type to which values on the way may be rounded.
std::string far_apart(const std::vector<Tensor>& found, const std::vector<Tensor>& expected,
                      double coarsest = 0) {
  if (found.size() != expected.size()) return "another number of tensors";
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string what = graph::far_apart(found[i], expected[i], coarsest);
    if (!what.empty()) return "tensor " + std::to_string(i) + " " + what;
  }
  return "";
}

// The epsilon of the coarsest type of the arguments, to which fused operators do not round, though
// a result may be of a finer one.
double coarsest_of(const Arguments& arguments) {
  double coarsest = 0;
  for (const Tensor& argument : flat_tensors(arguments)) {
    if (is_floating_point(argument.dtype())) {
      coarsest = std::max(coarsest, graph::rounding_error(argument.dtype()));
    }
  }
  return coarsest;
}

// Returns what differs by more than the operator's tolerance, or "".
std::string beyond_tolerance(const Case& c, const Arguments& arguments,
                             const std::vector<Tensor>& found,
                             const std::vector<Tensor>& expected) {
  if (found.size() != expected.size()) return "another number of tensors";
  const double coarsest = coarsest_of(arguments);
  for (size_t i = 0; i < found.size(); ++i) {
    const bool finer = is_floating_point(expected[i].dtype()) &&
                       graph::rounding_error(expected[i].dtype()) < coarsest;
    const std::string what = finer
                                 ? far_apart({found[i]}, {expected[i]}, coarsest)
                                 : difference(*c.op, arguments, found[i], expected[i], Tolerance{});
    if (!what.empty()) return "tensor " + std::to_string(i) + " " + what;
  }
  return "";
}

// Compares compiled functions in the default mode, in which sums may be reordered, values of fused
// operators keep the precision of kernels, and a backend may take every node. Returns whether one
// took a node.
bool check_default(const Case& c, const Arguments& arguments, bool gradients, const Fail& fail) {
  const Arguments eagerly = with_own_generators(arguments),
                  recorded = with_own_generators(arguments);
  auto compiled = compile([&](const std::vector<Tensor>& tensors) {
    return call_flat(c, recorded, tensors, gradients);
  });
  constexpr int kCalls = 4;  // recorded, planned, and replayed twice
  for (int call = 0; call < kCalls; ++call) {
    const Arguments eager = copy_of(arguments), own = copy_of(arguments);
    const std::vector<Tensor> expected = call_flat(c, eagerly, flat_tensors(eager), gradients);
    std::string what;
    try {
      const std::vector<Tensor> found = compiled(flat_tensors(own));
      // The record's tolerance is for its results, not for its gradients, and a region's order of
      // sums is the backend's.
      what = gradients || compiled.stats().regions > 0
                 ? far_apart(found, expected, coarsest_of(arguments))
                 : beyond_tolerance(c, arguments, found, expected);
    } catch (const Error& error) {
      what = error.what();
    }
    if (what.empty()) what = far_apart(flat_tensors(own), flat_tensors(eager));
    if (what.empty()) continue;
    std::string report;
    for (const std::string& line : compiled.stats().region_report) report += "\n  " + line;
    const bool region = compiled.stats().regions > 0;
    fail(std::string(region ? "region" : "compiled, default") + (gradients ? ", gradient" : ""),
         "call " + std::to_string(call) + ": " + what + report + "\n" + compiled.text());
    break;
  }
  return compiled.stats().regions > 0;
}

// A copy that no stage leaves out or joins with a pointwise call.
Tensor turned(const Tensor& x) { return x.dim() > 0 ? x.flip({0}) : x; }

// Compares compiled functions in which nobody reads one of the operands later, so that a result may
// take its memory if the kernels say that they accept it.
void check_in_place(const Case& c, const Arguments& arguments, const Fail& fail) {
  std::vector<Tensor> tensors = flat_tensors(arguments);
  // More elements than a vector has: kernels load the last ones, which do not fill one, beforehand.
  constexpr int64_t kTimes = 16;
  std::vector<int64_t> times{kTimes};
  for (const Tensor& each : tensors) {
    times.resize(std::max(times.size(), static_cast<size_t>(each.dim()) + 1), 1);
  }
  for (Tensor& each : tensors) each = each.repeat(times);
  for (size_t last = 0; last < tensors.size(); ++last) {
    const auto function = [&](std::vector<Tensor> given) {
      given[last] = turned(given[last]);
      std::vector<Tensor> results = flat(call_named(c.op->name, with_tensors(arguments, given)));
      for (Tensor& each : results) each = turned(each);
      return results;
    };
    std::vector<Tensor> given = tensors;
    given[last] = turned(given[last]);
    std::vector<Tensor> expected;
    try {
      expected = function(given);
    } catch (const Error&) {
      return;  // compared elsewhere
    }
    auto compiled = compile(function, {.mode = CompileMode::kExact});
    constexpr int kCalls = 3;  // recorded, planned and replayed
    for (int call = 0; call < kCalls; ++call) {
      std::string what;
      try {
        what = first_difference(compiled(given), expected);
      } catch (const Error& error) {
        what = error.what();
      }
      if (what.empty()) continue;
      fail("compiled, in place", "over operand " + std::to_string(last) + ", call " +
                                     std::to_string(call) + ": " + what + "\n" + compiled.text());
      return;
    }
  }
}

enum class Form { kSkipped, kRefused, kHeld };

// Compares a compiled function in the mode that keeps every bit. `refusal` is why a graph cannot
// hold the call.
Form check_exact(const Case& c, const Arguments& arguments, bool gradients, const Fail& fail,
                 std::string* refusal) {
  const std::string check = gradients ? "compiled gradient" : "compiled";
  const Arguments eagerly = with_own_generators(arguments),
                  recorded = with_own_generators(arguments);
  auto compiled = compile(
      [&](const std::vector<Tensor>& tensors) {
        return call_flat(c, recorded, tensors, gradients);
      },
      {.mode = CompileMode::kExact});
  constexpr int kCalls = 4;  // recorded, planned, and replayed twice
  for (int call = 0; call < kCalls; ++call) {
    const Arguments eager = copy_of(arguments), own = copy_of(arguments);
    std::vector<Tensor> expected, found;
    try {
      expected = call_flat(c, eagerly, flat_tensors(eager), gradients);
    } catch (const Error&) {
      return Form::kSkipped;  // compared elsewhere
    }
    try {
      found = compiled(flat_tensors(own));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kUnsupported && call == 0) {
        *refusal = error.what();
        return Form::kRefused;
      }
      fail(check, std::string("call ") + std::to_string(call) + " failed: " + error.what());
      return Form::kHeld;
    }
    std::string what = first_difference(found, expected, gradients, !c.op->unspecified());
    if (what.empty()) what = first_difference(flat_tensors(own), flat_tensors(eager));
    if (what.empty()) continue;
    fail(check, "call " + std::to_string(call) + ": " + what + "\n" + compiled.text());
    return Form::kHeld;
  }
  if (compiled.stats().recorded != 1) {
    fail(check, "recorded " + std::to_string(compiled.stats().recorded) + " times, because " +
                    compiled.stats().reason);
  }
  const std::string what = check_saved(c, arguments, gradients);
  if (!what.empty()) fail(check + ", saved", what);
  return Form::kHeld;
}

}  // namespace

InGraphs check_compiled(const Case& c, const Arguments& arguments, const Fail& fail) {
  InGraphs found;
  const Form form = check_exact(c, arguments, false, fail, &found.refusal);
  if (form != Form::kHeld) return found;
  found.held = true;
  found.has_gradient =
      c.op->differentiable() && is_differentiable(c.dtype) &&
      check_exact(c, arguments, true, fail, &found.gradient_refusal) == Form::kHeld;
  // Other results in place are those of in-place forms.
  const bool alone = c.op->result_names.size() == 1 && !c.op->derived;
  if (c.op->meaning == "pointwise" && !alone) check_in_place(c, arguments, fail);
  // Sums of infinities depend on the order.
  if (c.special() || c.op->unspecified()) return found;
  found.in_regions = check_default(c, arguments, false, fail);
  if (found.has_gradient) {
    found.in_regions = check_default(c, arguments, true, fail) || found.in_regions;
  }
  return found;
}

}  // namespace mytorch::conformance
