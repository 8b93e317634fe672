// Gradients against differences.
#include <algorithm>

#include "mytorch/autograd/gradcheck.h"
#include "mytorch/error.h"
#include "tests/conformance/check.h"
#include "tests/conformance/elements.h"

namespace mytorch::conformance {
namespace {

// Kinks and other corners, where differences do not exist.
bool has_corners(const Json& value) {
  if (value.is_array()) return std::any_of(value.begin(), value.end(), has_corners);
  if (!value.is_object()) return false;
  if (value.contains("special")) return true;
  return value.contains("values") &&
         value.value("dtype", "float").find("float") != std::string::npos;
}

// Whether a tensor of the sample says that it is not to be differentiated.
bool opts_out(const Json& sample, const std::string& arg, int item) {
  const Json& spec = sample.at("args").at(arg);
  const Json& one = item < 0 ? spec : spec.at(item);
  return one.is_object() && !one.value("grad", true);
}

}  // namespace

bool check_gradient(const Case& c, uint64_t seed, Device device, const Fail& fail) {
  const OpRecord& op = *c.op;
  if (!op.differentiable() || c.sample->contains("error") || c.may_fail()) return false;
  // Derived samples say which of them are for this; a written one is, unless it says otherwise.
  const bool derived_sample = op.meaning == "pointwise" || op.meaning == "reduce";
  if (!c.sample->value("gradcheck", false)) {
    if (derived_sample || c.dtype != kFloat64) return false;
    for (const auto& [name, value] : c.sample->at("args").items()) {
      if (has_corners(value)) return false;
    }
  }
  const Arguments arguments = make_arguments(c, seed, device, kFloat64);
  // The leaves, and where they go.
  std::vector<Tensor> leaves;
  struct Place {
    size_t argument;
    int item;  // of a list, else -1
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
      // Differences move single elements, which those of an expanded tensor are not.
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
      const Tensor input = arg->written ? call("clone", {inputs[k]})[0].tensor() : inputs[k];
      if (places[k].item < 0) {
        value = input;
      } else {
        std::vector<Tensor> list = value.tensors();
        list[places[k].item] = input;
        value = list;
      }
    }
    // An argument that is written but is no leaf must be fresh each time too.
    for (auto& [name, value] : own.values) {
      const OpArg* arg = op.arg(name);
      if (arg->written && !value.tensor().requires_grad()) value = copy_of(value.tensor());
    }
    std::vector<Tensor> outputs;
    for (const Value& result : call_named(op.name, own)) {
      if (const auto* tensor = std::get_if<Tensor>(&result.variant())) {
        // Differences would vanish in the steps of a coarser type.
        if (tensor->defined() && tensor->dtype() == kFloat64) outputs.push_back(*tensor);
      } else if (const auto* list = std::get_if<std::vector<Tensor>>(&result.variant())) {
        outputs.insert(outputs.end(), list->begin(), list->end());
      }
    }
    return outputs;
  };
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
