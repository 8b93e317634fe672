#include "conformance/leaves.h"

#include "conformance/check.h"
#include "conformance/elements.h"

namespace mytorch::conformance {
namespace {

// Finite differences evaluate the call twice for each element.
constexpr int64_t kMostOfLeaf = 200;

// Where a leaf is among the arguments.
struct Place {
  size_t argument;
  int item;  // index in a list; -1 for a tensor
};

const Json& spec_of(const Json& sample, const std::string& arg, int item) {
  const Json& spec = sample.at("args").at(arg);
  return item < 0 ? spec : spec.at(item);
}

// Whether the sample excludes a tensor from differentiation.
bool opts_out(const Json& sample, const std::string& arg, int item) {
  const Json& spec = spec_of(sample, arg, item);
  return spec.is_object() && !spec.value("grad", true);
}

// Whether the sample makes symmetric matrices, of which a function may read one triangle.
bool is_symmetric(const Json& sample, const std::string& arg, int item) {
  const Json& spec = spec_of(sample, arg, item);
  const std::string kind = spec.is_object() ? spec.value("matrix", "") : "";
  return kind == "positive" || kind == "symmetric";
}

Tensor symmetric_part(const Tensor& x) {
  Tensor mirrored = call("transpose.int", {x, int64_t{-2}, int64_t{-1}})[0].tensor();
  if (x.is_complex()) mirrored = call("conj", {mirrored})[0].tensor();
  const Tensor sum = call("add", {x, mirrored})[0].tensor();
  return call("mul", {sum, Scalar(0.5)})[0].tensor();
}

// A coarser type would round the differences away.
bool in_double_precision(const Tensor& t) {
  return t.defined() && (t.dtype() == kFloat64 || t.dtype() == kComplex128);
}

std::vector<Tensor> doubles_of(const std::vector<Value>& results) {
  std::vector<Tensor> found;
  const auto add = [&](const Tensor& t) {
    if (in_double_precision(t)) found.push_back(t);
  };
  for (const Value& result : results) {
    if (const auto* tensor = std::get_if<Tensor>(&result.variant())) {
      add(*tensor);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&result.variant())) {
      for (const Tensor& t : *list) add(t);
    }
  }
  return found;
}

// Calls the operator with `inputs` at their places among the arguments.
std::vector<Tensor> call_with(const Case& c, const Arguments& arguments,
                              const std::vector<Place>& places, const std::vector<Tensor>& inputs,
                              bool inplace) {
  const auto is_written = [&](const std::string& name) {
    return c.op->arg(name)->written || (inplace && name == arguments.values.front().first);
  };
  Arguments own;
  for (const auto& [name, value] : arguments.values) {
    const auto* generator = std::get_if<Generator>(&value.variant());
    own.values.emplace_back(name,
                            generator != nullptr ? Value(Generator(generator->seed())) : value);
  }
  for (size_t k = 0; k < places.size(); ++k) {
    Value& value = own.values[places[k].argument].second;
    const OpArg* arg = c.op->arg(own.values[places[k].argument].first);
    Tensor input = is_written(arg->name) ? call("clone", {inputs[k]})[0].tensor() : inputs[k];
    if (is_symmetric(*c.sample, arg->name, places[k].item)) input = symmetric_part(input);
    if (places[k].item < 0) {
      value = input;
    } else {
      std::vector<Tensor> list = value.tensors();
      list[static_cast<size_t>(places[k].item)] = input;
      value = list;
    }
  }
  // Each call needs a fresh copy of a written argument that is not a leaf.
  for (auto& [name, value] : own.values) {
    if (is_written(name) && !value.tensor().requires_grad()) {
      value = copy_of(value.tensor());
    }
  }
  return doubles_of(call_named(inplace ? c.op->inplace_name() : c.op->name, own));
}

}  // namespace

DifferentiableCall differentiable_call(const Case& c, const Arguments& arguments, bool inplace) {
  DifferentiableCall found;
  std::vector<Place> places;
  bool overlaps = false;
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    const auto& [name, value] = arguments.values[i];
    const OpArg* arg = c.op->arg(name);
    if (arg == nullptr || !arg->differentiable) continue;
    const auto add = [&, &arg_name = name](const Tensor& t, int item) {
      if (!t.defined()) return;
      overlaps = overlaps || has_internal_overlap(*t.impl());
      if (!in_double_precision(t) || opts_out(*c.sample, arg_name, item) || t.numel() > kMostOfLeaf)
        return;
      found.leaves.push_back(copy_of(t).detach().requires_grad_());
      found.names.push_back(item < 0 ? arg_name : arg_name + "[" + std::to_string(item) + "]");
      places.push_back({i, item});
    };
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      add(*tensor, -1);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      for (size_t k = 0; k < list->size(); ++k) add((*list)[k], static_cast<int>(k));
    }
  }
  if (overlaps) return {};
  found.function = [c, arguments, places, inplace](const std::vector<Tensor>& inputs) {
    return call_with(c, arguments, places, inputs, inplace);
  };
  return found;
}

}  // namespace mytorch::conformance
