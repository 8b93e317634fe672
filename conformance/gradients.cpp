// Checks gradients against finite differences.
#include <algorithm>
#include <cmath>
#include <functional>

#include "conformance/check.h"
#include "conformance/compare.h"
#include "conformance/elements.h"
#include "mytorch/autograd/gradcheck.h"
#include "mytorch/error.h"

namespace mytorch::conformance {
namespace {

// Whether a sample has values at which derivatives may not exist.
bool has_corners(const Json& value) {
  if (value.is_array()) return std::any_of(value.begin(), value.end(), has_corners);
  if (!value.is_object()) return false;
  if (value.contains("special")) return true;
  return value.contains("values") &&
         value.value("dtype", "float").find("float") != std::string::npos;
}

// Whether the sample excludes a tensor from differentiation.
bool opts_out(const Json& sample, const std::string& arg, int item) {
  const Json& spec = sample.at("args").at(arg);
  const Json& one = item < 0 ? spec : spec.at(item);
  return one.is_object() && !one.value("grad", true);
}

// Whether the sample makes symmetric matrices, of which a function may read one triangle.
bool is_symmetric(const Json& sample, const std::string& arg, int item) {
  const Json& spec = sample.at("args").at(arg);
  const Json& one = item < 0 ? spec : spec.at(item);
  const std::string kind = one.is_object() ? one.value("matrix", "") : "";
  return kind == "positive" || kind == "symmetric";
}

Tensor symmetric_part(const Tensor& x) {
  const Tensor mirrored = call("transpose.int", {x, int64_t{-2}, int64_t{-1}})[0].tensor();
  const Tensor sum = call("add", {x, mirrored})[0].tensor();
  return call("mul", {sum, Scalar(0.5)})[0].tensor();
}

// Returns the gradients of the sum of all outputs with respect to the leaves marked in `wanted`.
// The other leaves do not require gradients, so kernels get no output for them.
std::vector<Tensor> gradients_of(
    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
    const std::vector<Tensor>& leaves, const std::vector<bool>& wanted) {
  std::vector<Tensor> inputs;
  for (size_t k = 0; k < leaves.size(); ++k) {
    inputs.push_back(leaves[k].detach());
    if (wanted[k]) inputs[k].requires_grad_();
  }
  Tensor total;
  for (const Tensor& output : function(inputs)) {
    if (!output.requires_grad()) continue;
    const Tensor sum = call("sum", {output})[0].tensor();
    total = total.defined() ? call("add", {total, sum})[0].tensor() : sum;
  }
  if (total.defined()) total.backward();
  std::vector<Tensor> gradients;
  for (const Tensor& input : inputs) gradients.push_back(input.grad());
  return gradients;
}

// Checks that each gradient is the same whether or not the other ones are requested. Another kernel
// may compute it then, so sums that cancel may differ by the rounding of terms of about 1.
void check_each_alone(
    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
    const std::vector<Tensor>& leaves, const Fail& fail) {
  if (leaves.size() < 2) return;
  const std::vector<Tensor> together =
      gradients_of(function, leaves, std::vector<bool>(leaves.size(), true));
  for (size_t k = 0; k < leaves.size(); ++k) {
    std::vector<bool> wanted(leaves.size(), false);
    wanted[k] = true;
    const Tensor alone = gradients_of(function, leaves, wanted)[k];
    if (alone.defined() != together[k].defined()) {
      fail("gradient alone",
           "the gradient of leaf " + std::to_string(k) +
               " exists only if other gradients are requested, or only if none is");
    } else if (alone.defined()) {
      const std::vector<Element> one = elements_of(alone);
      const std::vector<Element> other = elements_of(together[k]);
      double largest = 0;
      for (const Element& e : other) {
        if (std::isfinite(e.as_double())) largest = std::max(largest, std::abs(e.as_double()));
      }
      for (size_t i = 0; i < one.size(); ++i) {
        const double x = one[i].as_double();
        const double y = other[i].as_double();
        if (x == y || (std::isnan(x) && std::isnan(y))) continue;
        if (std::abs(x - y) <= 1e-9 * (1 + largest)) continue;
        fail("gradient alone", "element [" + std::to_string(i) + "] of the gradient of leaf " +
                                   std::to_string(k) + " is " + std::to_string(x) + ", but " +
                                   std::to_string(y) + " if all gradients are requested");
        break;
      }
    }
  }
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
  // The leaves, and their places among the arguments.
  std::vector<Tensor> leaves;
  struct Place {
    size_t argument;
    int item;  // index in a list; -1 for a tensor
  };
  std::vector<Place> places;
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    const auto& [name, value] = arguments.values[i];
    const OpArg* arg = op.arg(name);
    if (arg == nullptr || !arg->differentiable) continue;
    auto add = [&](const Tensor& t, int item) {
      if (!t.defined() || t.dtype() != kFloat64 ||
          opts_out(*c.sample, arguments.values[i].first, item))
        return;
      Tensor leaf = copy_of(t).detach();
      if (t.numel() > 0 && elements_of(t).size() > 200) return;
      leaves.push_back(leaf.requires_grad_());
      places.push_back({i, item});
    };
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      // Finite differences change single elements; those of an expanded tensor share memory.
      if (tensor->defined() && has_internal_overlap(*tensor->impl())) return false;
      add(*tensor, -1);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      for (size_t k = 0; k < list->size(); ++k) {
        if ((*list)[k].defined() && has_internal_overlap(*(*list)[k].impl())) return false;
        add((*list)[k], static_cast<int>(k));
      }
    }
  }
  if (leaves.empty()) return false;
  auto function = [&](const std::vector<Tensor>& inputs) {
    Arguments own;
    for (const auto& [name, value] : arguments.values) {
      const auto* generator = std::get_if<Generator>(&value.variant());
      own.values.emplace_back(name,
                              generator != nullptr ? Value(Generator(generator->seed())) : value);
    }
    for (size_t k = 0; k < places.size(); ++k) {
      Value& value = own.values[places[k].argument].second;
      const OpArg* arg = op.arg(own.values[places[k].argument].first);
      Tensor input = arg->written ? call("clone", {inputs[k]})[0].tensor() : inputs[k];
      if (is_symmetric(*c.sample, arg->name, places[k].item)) input = symmetric_part(input);
      if (places[k].item < 0) {
        value = input;
      } else {
        std::vector<Tensor> list = value.tensors();
        list[places[k].item] = input;
        value = list;
      }
    }
    // Each call needs a fresh copy of a written argument that is not a leaf.
    for (auto& [name, value] : own.values) {
      const OpArg* arg = op.arg(name);
      if (arg->written && !value.tensor().requires_grad()) value = copy_of(value.tensor());
    }
    std::vector<Tensor> outputs;
    for (const Value& result : call_named(op.name, own)) {
      if (const auto* tensor = std::get_if<Tensor>(&result.variant())) {
        // A coarser type would round the differences away.
        if (tensor->defined() && tensor->dtype() == kFloat64) outputs.push_back(*tensor);
      } else if (const auto* list = std::get_if<std::vector<Tensor>>(&result.variant())) {
        outputs.insert(outputs.end(), list->begin(), list->end());
      }
    }
    return outputs;
  };
  try {
    check_each_alone(function, leaves, fail);
  } catch (const Error& error) {
    fail("gradient alone", std::string("failed: ") + error.what());
  }
  for (const bool second : {false, true}) {
    if (second && op.once_differentiable) break;
    const std::string check = second ? "gradgradcheck" : "gradcheck";
    try {
      const auto result = second ? autograd::gradgradcheck(function, leaves)
                                 : autograd::gradcheck(function, leaves);
      if (!result) fail(check, result.message);
    } catch (const Error& error) {
      fail(check, std::string("failed: ") + error.what());
    }
  }
  return true;
}

}  // namespace mytorch::conformance
