// Conversion of parameters, gradients and buffers in place.
#include <functional>
#include <map>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/module.h"
#include "mytorch/ops/to.h"

namespace mytorch::nn {

// The values of parametrized members, until they are computed again.
void Module::convert_computed(const std::function<Tensor(const Tensor&)>& function) {
  for (TensorEntry& entry : tensors_) {
    if (entry.computed) set_computed(entry, function(resolve(entry).detach()));
  }
  for (const ChildEntry& entry : children_) resolve(entry).convert_computed(function);
}

// Makes all data before replacing the first, so that an error changes nothing.
void Module::convert(const std::function<Tensor(const Tensor&)>& function) {
  NoGradGuard no_grad;
  struct Converted {
    Tensor data;
    Tensor grad;
    std::vector<Tensor*> places;  // the members that are this tensor
  };
  std::map<const TensorImpl*, Converted> all;
  visit("", [&](const std::string&, Tensor& tensor, Role) {
    const auto [at, is_new] = all.try_emplace(tensor.impl());
    Converted& converted = at->second;
    converted.places.push_back(&tensor);
    if (!is_new) return;
    converted.data = function(tensor);
    if (const Tensor grad = tensor.grad(); grad.defined()) converted.grad = function(grad);
  });
  convert_computed(function);
  for (auto& [impl, converted] : all) {
    Tensor& tensor = *converted.places[0];
    if (converted.data.is_same(tensor)) continue;
    if (tensor.is_view() || !tensor.is_leaf()) {  // a buffer of values that something else computed
      for (Tensor* place : converted.places) *place = converted.data;
      continue;
    }
    tensor.set_grad({});
    tensor.set_data(converted.data);
    tensor.set_grad(converted.grad);
  }
}

void Module::to(Device device, bool non_blocking) {
  convert([&](const Tensor& tensor) { return mytorch::to(tensor, device, {}, non_blocking); });
}

void Module::to(ScalarType dtype, bool non_blocking) {
  if (!is_differentiable(dtype)) {
    fail(ErrorCode::kType, "[Module::to] modules have floating or complex types, not ",
         dtype_name(dtype));
  }
  // Complex tensors keep their imaginary parts in a module of real ones.
  convert([&](const Tensor& tensor) {
    const bool converts = tensor.is_floating_point() || (tensor.is_complex() && is_complex(dtype));
    return converts ? mytorch::to(tensor, dtype, non_blocking) : tensor;
  });
}

void Module::to(Device device, ScalarType dtype, bool non_blocking) {
  to(dtype, non_blocking);
  to(device, non_blocking);
}

}  // namespace mytorch::nn
