// Autocast's wrapper of operators registered at run time.
#include "dispatcher/custom/custom.h"

#include <variant>
#include <vector>

#include "autograd/autocast/cast.h"

namespace mytorch::autocast {
namespace {

// Calls f with every defined tensor among the arguments.
template <class F>
void for_each_tensor(const std::vector<Value>& args, F f) {
  for (const Value& value : args) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      if (tensor->defined()) f(*tensor);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      for (const Tensor& each : *list) {
        if (each.defined()) f(each);
      }
    }
  }
}

Tensor cast_one(Policy policy, const Tensor& tensor) {
  return tensor.defined() && casts(policy, tensor.impl()) ? cast_by(policy, tensor) : tensor;
}

std::vector<Value> cast_all(const CustomOperator& op, const std::vector<Value>& args) {
  const std::string& name = op.spec.autocast;
  const Policy policy = name == "lower"     ? Policy::kLower
                        : name == "float32" ? Policy::kFloat32
                                            : Policy::kWidest;
  int types = 0;
  for_each_tensor(args, [&](const Tensor& tensor) { types |= type_bit(tensor.impl()); });
  if (policy == Policy::kWidest && !widens(types)) return next_custom(kLayerAutocast, op, args);
  std::vector<Value> cast = args;
  for (Value& value : cast) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      value = cast_one(policy, *tensor);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      std::vector<Tensor> tensors;
      for (const Tensor& each : *list) tensors.push_back(cast_one(policy, each));
      value = std::move(tensors);
    }
  }
  return next_custom(kLayerAutocast, op, cast);
}

[[maybe_unused]] const bool installed = (cast_custom = cast_all, true);

}  // namespace
}  // namespace mytorch::autocast
