#include "mytorch/nn/optim/optimizer.h"

#include <algorithm>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/zero_.h"

namespace mytorch::nn::optim {
namespace {

[[noreturn]] void fail_without_parameters(const char* optimizer) {
  fail(ErrorCode::kValue, "[", optimizer,
       "] there are no parameters to optimize: register the layers of the model, as in "
       "register_module(\"fc\", fc)");
}

}  // namespace

Optimizer::Optimizer(const char* name, std::span<const char* const> state_names,
                     std::unique_ptr<OptimizerOptions> defaults)
    : name_(name), state_names_(state_names), defaults_(std::move(defaults)) {}

Optimizer::~Optimizer() {
  if (self_ != nullptr) *self_ = nullptr;
}

void Optimizer::refuse_options() const {
  fail(ErrorCode::kValue, "[", name_, "] the group has options of another optimizer: give ", name_,
       "Options");
}

void Optimizer::add_param_groups(ParamGroups groups) {
  if (groups.groups().empty()) fail_without_parameters(name_);
  for (OptimizerParamGroup& group : groups.groups()) add_param_group(std::move(group));
}

void Optimizer::add_param_group(OptimizerParamGroup group) {
  if (!group.has_options()) group.set_options(defaults_->clone());
  check_options(group.options());
  groups_.push_back(slots_of(group.params()));
  param_groups_.push_back(std::move(group));
}

std::vector<Optimizer::Slot> Optimizer::slots_of(const std::vector<Tensor>& parameters) const {
  if (parameters.empty()) fail_without_parameters(name_);
  std::vector<Slot> slots;
  const auto holds = [](const std::vector<Slot>& group, const Tensor& parameter) {
    return std::any_of(group.begin(), group.end(),
                       [&](const Slot& slot) { return slot.parameter.is_same(parameter); });
  };
  for (const Tensor& parameter : parameters) {
    const auto refuse = [&](const char* reason) {
      fail(ErrorCode::kValue, "[", name_, "] parameter ", slots.size(), " of group ",
           groups_.size(), " ", reason);
    };
    if (!parameter.defined()) refuse("is undefined");
    if (!parameter.is_leaf()) {
      refuse("is not a leaf: pass the leaves that it was computed from, or its detach()");
    }
    if (!is_differentiable(parameter.dtype())) {
      refuse("does not have a floating-point or complex type");
    }
    if (const char* reason = refusal(parameter); reason != nullptr) refuse(reason);
    if (holds(slots, parameter)) refuse("occurs twice");
    for (const std::vector<Slot>& group : groups_) {
      if (holds(group, parameter)) refuse("is already in another group");
    }
    slots.push_back(Slot{.parameter = parameter, .state = {}});
  }
  return slots;
}

void Optimizer::zero_grad(bool set_to_none) {
  NoGradGuard no_grad;
  for (std::vector<Slot>& group : groups_) {
    for (Slot& slot : group) {
      if (set_to_none) {
        slot.parameter.set_grad({});
      } else if (const Tensor grad = slot.parameter.grad(); grad.defined()) {
        grad.detach().zero_();
      }
    }
  }
}

void Optimizer::check_group(size_t group) const {
  if (group >= groups_.size()) {
    fail(ErrorCode::kValue, "[", name_, "] there is no group ", group, " among ", groups_.size());
  }
}

std::vector<Tensor> Optimizer::parameters(size_t group) const {
  check_group(group);
  return param_groups_[group].params();
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> list;
  for (const OptimizerParamGroup& group : param_groups_) {
    list.insert(list.end(), group.params().begin(), group.params().end());
  }
  return list;
}

size_t Optimizer::size() const {
  size_t count = 0;
  for (const OptimizerParamGroup& group : param_groups_) count += group.params().size();
  return count;
}

}  // namespace mytorch::nn::optim
