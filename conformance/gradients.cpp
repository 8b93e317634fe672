// Checks gradients against finite differences.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "conformance/check.h"
#include "conformance/compare.h"
#include "conformance/elements.h"
#include "conformance/leaves.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/gradcheck.h"
#include "mytorch/error.h"

namespace mytorch::conformance {
namespace {

// The operands and results of an edge case of which differences are computed. Each element takes
// two calls for first gradients, and two for second ones.
constexpr int64_t kMostElements = 120;

// Whether a sample has values at which derivatives may not exist.
bool has_corners(const Json& value) {
  if (value.is_array()) return std::any_of(value.begin(), value.end(), has_corners);
  if (!value.is_object()) return false;
  if (value.contains("special")) return true;
  return value.contains("values") &&
         value.value("dtype", "float").find("float") != std::string::npos;
}

// Returns the elements; both parts of complex ones.
std::vector<double> numbers_of(const Tensor& tensor) {
  const bool complex = tensor.is_complex();
  std::vector<double> numbers;
  for (const Element& e :
       elements_of(complex ? call("view_as_real", {tensor})[0].tensor() : tensor)) {
    numbers.push_back(e.as_double());
  }
  return numbers;
}

bool all_finite(const std::vector<Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
    if (!tensor.defined()) return true;
    const std::vector<double> numbers = numbers_of(tensor);
    return std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); });
  });
}

int64_t elements_in(const std::vector<Tensor>& tensors) {
  int64_t count = 0;
  for (const Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

// Returns the gradients of the sum of all outputs with respect to the leaves marked in `wanted`.
// The other leaves do not require gradients, so kernels get no output for them.
std::vector<Tensor> gradients_of(const DifferentiableCall& call_of,
                                 const std::vector<bool>& wanted) {
  std::vector<Tensor> inputs;
  for (size_t k = 0; k < call_of.leaves.size(); ++k) {
    inputs.push_back(call_of.leaves[k].detach());
    if (wanted[k]) inputs[k].requires_grad_();
  }
  Tensor total;
  for (const Tensor& output : call_of.function(inputs)) {
    if (!output.requires_grad()) continue;
    const Tensor parts = output.is_complex() ? call("view_as_real", {output})[0].tensor() : output;
    const Tensor sum = call("sum", {parts})[0].tensor();
    total = total.defined() ? call("add", {total, sum})[0].tensor() : sum;
  }
  if (total.defined()) total.backward();
  std::vector<Tensor> gradients;
  for (const Tensor& input : inputs) gradients.push_back(input.grad());
  return gradients;
}

// Returns the first element in which gradients differ by more than the rounding of terms of about
// 1, or "". An undefined gradient is zero.
std::string difference_of(const Tensor& found, const Tensor& expected) {
  if (!found.defined() && !expected.defined()) return "";
  const Tensor& any = found.defined() ? found : expected;
  const std::vector<double> zeros(numbers_of(any).size(), 0);
  const std::vector<double> one = found.defined() ? numbers_of(found) : zeros;
  const std::vector<double> other = expected.defined() ? numbers_of(expected) : zeros;
  double largest = 0;
  for (const double x : other) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  for (size_t i = 0; i < one.size(); ++i) {
    const double x = one[i];
    const double y = other[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (std::abs(x - y) <= 1e-9 * (1 + largest)) continue;
    return "element [" + std::to_string(i) + "] is " + std::to_string(x) + " instead of " +
           std::to_string(y);
  }
  return "";
}

// Checks that each gradient is the same whether or not the other ones are requested. Another kernel
// may compute it then, so sums that cancel may differ by the rounding of terms of about 1.
void check_each_alone(const DifferentiableCall& call_of, const Fail& fail) {
  const size_t count = call_of.leaves.size();
  if (count < 2) return;
  const std::vector<Tensor> together = gradients_of(call_of, std::vector<bool>(count, true));
  for (size_t k = 0; k < count; ++k) {
    std::vector<bool> wanted(count, false);
    wanted[k] = true;
    const Tensor alone = gradients_of(call_of, wanted)[k];
    if (alone.defined() != together[k].defined()) {
      fail("gradient alone",
           "the gradient of leaf " + std::to_string(k) +
               " exists only if other gradients are requested, or only if none is");
    } else if (alone.defined()) {
      const std::string what = difference_of(alone, together[k]);
      if (!what.empty()) {
        fail("gradient alone", "of leaf " + std::to_string(k) + ", beside all gradients: " + what);
      }
    }
  }
}

// Checks that the in-place form has the gradients of the function.
void check_inplace_gradient(const Case& c, const Arguments& arguments,
                            const DifferentiableCall& call_of, const Fail& fail) {
  if (!c.op->inplace) return;
  const DifferentiableCall inplace = differentiable_call(c, arguments, true);
  try {
    const NoGradGuard no_grad;
    if (inplace.function(inplace.leaves).size() != 1) return;
  } catch (const Error&) {
    return;  // the result does not fit; compared elsewhere
  }
  // All gradients, and each alone: then other operands, `self` too, have none.
  const size_t count = call_of.leaves.size();
  for (size_t alone = 0; alone <= (count > 1 ? count : 0); ++alone) {
    std::vector<bool> wanted(count, alone == 0);
    if (alone > 0) wanted[alone - 1] = true;
    try {
      const std::vector<Tensor> expected = gradients_of(call_of, wanted);
      const std::vector<Tensor> found = gradients_of(inplace, wanted);
      for (size_t k = 0; k < found.size(); ++k) {
        const std::string what = difference_of(found[k], expected[k]);
        if (!what.empty()) fail("gradient in place", "of leaf " + std::to_string(k) + ": " + what);
      }
    } catch (const Error& error) {
      fail("gradient in place", std::string("failed: ") + error.what());
    }
  }
}

// Compares first derivatives, and second ones if `twice`, with finite differences.
void check_differences(const DifferentiableCall& call_of, bool twice, const Fail& fail) {
  for (const bool second : {false, true}) {
    if (second && !twice) break;
    const std::string check = second ? "gradgradcheck" : "gradcheck";
    try {
      const auto result = second ? autograd::gradgradcheck(call_of.function, call_of.leaves)
                                 : autograd::gradcheck(call_of.function, call_of.leaves);
      if (!result) fail(check, result.message);
    } catch (const Error& error) {
      fail(check, std::string("failed: ") + error.what());
    }
  }
}

void check_each_alone_or_fail(const DifferentiableCall& call_of, const Fail& fail) {
  try {
    check_each_alone(call_of, fail);
  } catch (const Error& error) {
    fail("gradient alone", std::string("failed: ") + error.what());
  }
}

// Returns those that have a gradient, and the gradients of results from which to start.
struct Roots {
  std::vector<Tensor> tensors;
  std::vector<Tensor> seeds;

  explicit Roots(const std::vector<Tensor>& candidates) {
    for (const Tensor& t : candidates) {
      if (!t.defined() || !t.requires_grad()) continue;
      tensors.push_back(t);
      seeds.push_back(call("ones_like", {t})[0].tensor().requires_grad_());
    }
  }
};

// Checks that the gradients that exist have the forms of their leaves.
void check_form(const std::vector<Tensor>& gradients, const std::vector<Tensor>& leaves,
                const std::string& what, const Fail& fail) {
  for (size_t k = 0; k < leaves.size(); ++k) {
    const Tensor& gradient = gradients[k];
    if (!gradient.defined()) continue;
    if (gradient.sizes() == leaves[k].sizes() && gradient.dtype() == leaves[k].dtype()) continue;
    fail("gradient form", "the " + what + " of leaf " + std::to_string(k) + " is " +
                              shape_text(gradient) + ", the leaf is " + shape_text(leaves[k]));
  }
}

// Checks the forms of first and second gradients, also of those without elements, which finite
// differences cannot compare. Returns the first ones; none if no result has a gradient.
std::vector<Tensor> check_forms(const OpRecord& op, const DifferentiableCall& call_of,
                                const Fail& fail) {
  std::vector<Tensor> gradients;
  try {
    const Roots first(call_of.function(call_of.leaves));
    if (first.tensors.empty()) return {};
    gradients = autograd::grad(first.tensors, call_of.leaves, first.seeds,
                               {.create_graph = !op.once_differentiable, .allow_unused = true});
    check_form(gradients, call_of.leaves, "gradient", fail);
    if (op.once_differentiable) return gradients;
    const Roots second(gradients);
    if (second.tensors.empty()) return gradients;
    std::vector<Tensor> inputs = call_of.leaves;
    inputs.insert(inputs.end(), first.seeds.begin(), first.seeds.end());
    check_form(autograd::grad(second.tensors, inputs, second.seeds, {.allow_unused = true}), inputs,
               "second gradient", fail);
  } catch (const Error& error) {
    fail("gradient form", std::string("failed: ") + error.what());
  }
  return gradients;
}

}  // namespace

bool check_gradient(const Case& c, uint64_t seed, Device device, const Fail& fail) {
  const OpRecord& op = *c.op;
  if (!op.differentiable() || c.sample->contains("error") || c.may_fail()) return false;
  // Derived samples are marked `gradcheck`; a written sample counts unless a value forbids it.
  const bool derived_sample = op.meaning == "pointwise" || op.meaning == "reduce";
  if (!c.sample->value("gradcheck", false)) {
    if (derived_sample || c.dtype != kFloat64) return false;
    for (const auto& [name, value] : c.sample->at("args").items()) {
      if (has_corners(value)) return false;
    }
  }
  const Arguments arguments = make_arguments(c, seed, device, kFloat64);
  const DifferentiableCall call_of = differentiable_call(c, arguments);
  if (call_of.leaves.empty()) return false;
  check_each_alone_or_fail(call_of, fail);
  check_inplace_gradient(c, arguments, call_of, fail);
  check_differences(call_of, !op.once_differentiable, fail);
  return true;
}

bool check_edge(const Case& c, uint64_t seed, Device device, bool differences, Defined* defined,
                const Fail& fail) {
  const Arguments arguments = make_arguments(c, seed, device, c.dtype);
  const DifferentiableCall call_of = differentiable_call(c, arguments);
  if (call_of.leaves.empty()) return false;
  const std::vector<Tensor> gradients = check_forms(*c.op, call_of, fail);
  check_inplace_gradient(c, arguments, call_of, fail);
  // Complex calls may decompose before their formula, and leave out what they do not read.
  const bool check_defined = c.op->gradient == "formulas" &&
                             std::none_of(call_of.leaves.begin(), call_of.leaves.end(),
                                          [](const Tensor& leaf) { return leaf.is_complex(); });
  for (size_t k = 0; k < gradients.size() && check_defined; ++k) {
    const auto known =
        defined->insert({{c.origin, call_of.names[k]}, gradients[k].defined()}).first;
    if (!known->second || gradients[k].defined()) continue;
    fail("gradient form", "the gradient of " + call_of.names[k] + " is undefined");
  }
  if (!differences) return true;
  const std::vector<Tensor> results = call_of.function(call_of.leaves);
  // Means of nothing have no differences; those of large calls take long.
  if (!all_finite(results) || elements_in(call_of.leaves) + elements_in(results) > kMostElements) {
    return true;
  }
  check_each_alone_or_fail(call_of, fail);
  check_differences(call_of, !c.op->once_differentiable && all_finite(gradients), fail);
  return true;
}

}  // namespace mytorch::conformance
