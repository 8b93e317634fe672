#include "mytorch/nn/optim/optimizer.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/graph.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/full_like.h"
#include "mytorch/ops/zero_.h"
#include "mytorch/ops/zeros_like.h"

namespace mytorch::nn::optim {

void OptionList::add(const char* name, double& value) { numbers.push_back({name, &value}); }
void OptionList::add(const char* /*name*/, Betas& value) {
  add("beta1", std::get<0>(value));
  add("beta2", std::get<1>(value));
}
void OptionList::add(const char* name, bool& value) {
  others.emplace_back(name, value ? "true" : "false");
}
void OptionList::add(const char* name, int64_t& value) {
  others.emplace_back(name, std::to_string(value));
}
void OptionList::add(const char* name, std::optional<int64_t>& value) {
  others.emplace_back(name, value ? std::to_string(*value) : "none");
}
void OptionList::add(const char* name, std::optional<std::string>& value) {
  others.emplace_back(name, value.value_or("none"));
}

OptimizerOptions& OptimizerParamGroup::options() {
  if (options_ == nullptr) {
    fail(ErrorCode::kValue,
         "[OptimizerParamGroup] the group has no options: give them, or add it to an optimizer");
  }
  return *options_;
}
const OptimizerOptions& OptimizerParamGroup::options() const {
  return const_cast<OptimizerParamGroup*>(this)->options();
}

Optimizer::Optimizer(const char* name, std::vector<const char*> state_names,
                     std::unique_ptr<OptimizerOptions> defaults)
    : name_(name), state_names_(std::move(state_names)), defaults_(std::move(defaults)) {}

void Optimizer::check_option(bool good, const char* option, double value, const char* bound) const {
  if (!good) fail(ErrorCode::kValue, "[", name_, "] ", option, " is ", value, ": give ", bound);
}

void Optimizer::refuse_options() const {
  fail(ErrorCode::kValue, "[", name_, "] the group has options of another optimizer: give ", name_,
       "Options");
}

void Optimizer::add_param_groups(ParamGroups groups) {
  if (groups.groups().empty()) {
    fail(ErrorCode::kValue, "[", name_, "] there are no parameters to optimize");
  }
  for (OptimizerParamGroup& group : groups.groups()) add_param_group(std::move(group));
}

void Optimizer::add_param_group(OptimizerParamGroup group) {
  if (!group.has_options()) group.set_options(defaults_->clone());
  check_options(group.options());
  groups_.push_back(slots_of(group.params()));
  param_groups_.push_back(std::move(group));
}

std::vector<Optimizer::Slot> Optimizer::slots_of(const std::vector<Tensor>& parameters) const {
  if (parameters.empty()) {
    fail(ErrorCode::kValue, "[", name_, "] there are no parameters to optimize");
  }
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
    if (!parameter.is_floating_point()) refuse("does not have a floating-point type");
    if (holds(slots, parameter)) refuse("occurs twice");
    for (const std::vector<Slot>& group : groups_) {
      if (holds(group, parameter)) refuse("is already in another group");
    }
    slots.push_back(Slot{.parameter = parameter, .state = {}});
  }
  return slots;
}

// Converts the state of a parameter that has changed its type or device. Slots share counters, so
// these stay the same tensors.
void Optimizer::follow(Slot& slot) {
  const ScalarType dtype = slot.parameter.dtype();
  const Device device = slot.parameter.device();
  for (Tensor& state : slot.state) {
    if (!state.defined() || (state.dtype() == dtype && state.device() == device)) continue;
    state.set_data(state.to(device, dtype));
  }
  if (slot.counter.defined() && !(slot.counter.device() == device)) {
    slot.counter.set_data(slot.counter.to(device));
  }
}

void Optimizer::step() {
  NoGradGuard no_grad;
  for (size_t g = 0; g < groups_.size(); ++g) check_options(param_groups_[g].options());
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<Batch> batches;
    for (Slot& slot : groups_[g]) {
      Tensor gradient = slot.parameter.grad();
      if (!gradient.defined()) continue;
      follow(slot);
      const Device device = slot.parameter.device();
      auto batch = std::find_if(batches.begin(), batches.end(), [&](const Batch& known) {
        const Slot& other = *known.slots[0];
        return other.step == slot.step && other.counter.is_same(slot.counter) &&
               other.parameter.device() == device;
      });
      if (batch == batches.end()) {
        batch = batches.insert(batch, {.group = g, .lr = rate(g, device)});
      }
      batch->slots.push_back(&slot);
      batch->parameters.push_back(slot.parameter);
      batch->gradients.push_back(std::move(gradient));
    }
    for (Batch& batch : batches) {
      count(batch);
      update(batch);
    }
  }
}

Tensor Optimizer::step(const LossClosure& closure) {
  Tensor loss;
  {
    EnableGradGuard grad;
    loss = closure();
  }
  step();
  return loss;
}

// ---- values that captured steps read from the device

// Counts one step of the batch.
void Optimizer::count(Batch& batch) {
  const Device device = batch.parameters[0].device();
  Slot& one = *batch.slots[0];
  batch.first = !one.counter.defined() && one.step == 0;
  if (!one.counter.defined() && !is_capturing(device)) {
    for (Slot* slot : batch.slots) ++slot->step;
    batch.step = Operand(Scalar(one.step));
    return;
  }
  const auto sharing = std::count_if(
      groups_[batch.group].begin(), groups_[batch.group].end(),
      [&](const Slot& slot) { return one.counter.defined() && slot.counter.is_same(one.counter); });
  if (sharing != static_cast<std::ptrdiff_t>(batch.slots.size())) {
    // There is no counter yet, or it also counts the steps of other slots.
    Tensor own;
    run_uncaptured(device, [&] {
      own = one.counter.defined() ? clone(one.counter)
                                  : full(IntList(nullptr, 0), one.step, kInt64, device);
    });
    for (Slot* slot : batch.slots) slot->counter = own;
  }
  one.counter.add_(1);
  batch.step = Operand(one.counter);
}

// Returns the learning rate: a plain number until a step is captured.
Operand Optimizer::rate(size_t group, Device device) {
  rates_.resize(groups_.size());
  for (const Tensor& known : rates_[group]) {
    if (known.device() == device) return Operand(known);
  }
  if (!is_capturing(device)) return Operand(Scalar(lr(group)));
  run_uncaptured(device, [&] {
    rates_[group].push_back(full(IntList(nullptr, 0), lr(group), kFloat64, device));
  });
  return Operand(rates_[group].back());
}

void Optimizer::refresh_rates(size_t group) {
  if (group >= rates_.size()) return;
  for (const Tensor& rate : rates_[group]) {
    run_uncaptured(rate.device(), [&] { rate.fill_(lr(group)); });
  }
}

std::vector<Tensor> Optimizer::Batch::state(size_t i, double value) const {
  std::vector<Tensor> list;
  for (Slot* slot : slots) {
    Tensor& state = slot->state[i];
    if (!state.defined()) {
      run_uncaptured(slot->parameter.device(), [&] {
        state = value == 0 ? zeros_like(slot->parameter) : full_like(slot->parameter, value);
      });
    }
    list.push_back(state);
  }
  return list;
}

void Optimizer::zero_grad(bool set_to_none) {
  NoGradGuard no_grad;
  for (std::vector<Slot>& group : groups_) {
    for (Slot& slot : group) {
      const Tensor grad = slot.parameter.grad();
      if (set_to_none) {
        slot.parameter.set_grad({});
      } else if (grad.defined()) {
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

// The list has writable pointers; const callers only read them.
OptionList Optimizer::list(size_t group) const {
  check_group(group);
  OptionList list;
  const_cast<Optimizer*>(this)->param_groups_[group].options().list(list);
  return list;
}

double* Optimizer::find(size_t group, std::string_view a, std::string_view b) const {
  const OptionList options = list(group);
  for (const OptionList::Number& number : options.numbers) {
    if (number.name == a || number.name == b) return number.value;
  }
  return nullptr;
}

double* Optimizer::need(size_t group, std::string_view name) const {
  double* place = find(group, name, name);
  if (place != nullptr) return place;
  const auto append = [](std::string* out, const OptionList::Number& number) {
    *out += number.name;
  };
  fail(ErrorCode::kValue, "[", name_, "] has no option '", name, "': its numeric options are ",
       absl::StrJoin(list(group).numbers, ", ", append));
}

double Optimizer::option(size_t group, std::string_view name) const { return *need(group, name); }

void Optimizer::set_option(size_t group, std::string_view name, double value) {
  if (name == "lr") return set_lr(group, value);
  double* place = need(group, name);
  const double before = std::exchange(*place, value);
  try {
    check_options(param_groups_[group].options());
  } catch (const Error&) {
    *place = before;
    throw;
  }
}

std::string Optimizer::str() const {
  std::string text = absl::StrCat(name_, " (\n");
  for (size_t g = 0; g < groups_.size(); ++g) {
    absl::StrAppend(&text, "Parameter Group ", g, " (", groups_[g].size(), " tensors)\n");
    const OptionList options = list(g);
    for (const auto& [name, value] : options.numbers) {
      absl::StrAppend(&text, "    ", name, ": ", *value, "\n");
    }
    for (const auto& [name, value] : options.others) {
      absl::StrAppend(&text, "    ", name, ": ", value, "\n");
    }
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Optimizer& optimizer) {
  return out << optimizer.str();
}

double Optimizer::lr(size_t group) const { return *find(group, "lr", "lr"); }

void Optimizer::set_lr(size_t group, double lr) {
  check_option(lr >= 0, "lr", lr, "a rate that is not negative");
  *find(group, "lr", "lr") = lr;
  refresh_rates(group);
}

double Optimizer::momentum(size_t group) const {
  const double* momentum = find(group, "momentum", "beta1");
  return momentum != nullptr ? *momentum : 0;
}

void Optimizer::set_momentum(size_t group, double momentum) {
  double* place = find(group, "momentum", "beta1");
  if (place == nullptr) {
    fail(ErrorCode::kUnsupported, "[", name_, "] has no momentum to set");
  }
  check_option(momentum >= 0, "momentum", momentum, "a number that is not negative");
  *place = momentum;
}

// ---- state ----

TensorMap Optimizer::state_dict() const {
  TensorMap state;
  size_t index = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const OptionList options = list(g);
    for (const OptionList::Number& number : options.numbers) {
      state[absl::StrCat("group", g, ".", number.name)] = scalar_tensor(*number.value, kFloat64);
    }
    for (const Slot& slot : groups_[g]) {
      const std::string prefix = absl::StrCat("parameter", index++, ".");
      const int64_t steps = slot.steps();
      if (steps == 0) continue;
      state[prefix + "step"] = scalar_tensor(steps, kInt64);
      for (size_t i = 0; i < state_names_.size(); ++i) {
        if (slot.state[i].defined()) state[prefix + state_names_[i]] = slot.state[i].detach();
      }
    }
  }
  return state;
}

void Optimizer::load_state_dict(const TensorMap& state) {
  NoGradGuard no_grad;
  std::map<std::string, Tensor> rest(state.begin(), state.end());
  const auto take = [&](const std::string& name) {
    const auto found = rest.find(name);
    if (found == rest.end()) return Tensor();
    Tensor tensor = found->second;
    rest.erase(found);
    if (!tensor.defined()) {
      fail(ErrorCode::kValue, "[", name_, "] the state's '", name, "' is undefined");
    }
    return tensor;
  };
  const auto take_number = [&](const std::string& name) {
    Tensor tensor = take(name);
    if (tensor.defined() && tensor.numel() != 1) {
      fail(ErrorCode::kShape, "[", name_, "] the state's '", name, "' has shape ",
           shape_str(tensor.sizes()), " and is no single number");
    }
    return tensor;
  };
  // Read everything before the first change.
  std::vector<std::pair<double*, double>> numbers;
  std::vector<std::vector<Slot>> groups = groups_;
  size_t index = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const OptionList options = list(g);
    for (const OptionList::Number& number : options.numbers) {
      const std::string name = absl::StrCat("group", g, ".", number.name);
      const Tensor value = take_number(name);
      if (!value.defined()) {
        fail(ErrorCode::kValue, "[", name_, "] the state has no '", name, "'");
      }
      numbers.emplace_back(number.value, value.item<double>());
    }
    for (Slot& slot : groups[g]) {
      const std::string prefix = absl::StrCat("parameter", index++, ".");
      const Tensor step = take_number(prefix + "step");
      slot.step = step.defined() ? step.item<int64_t>() : 0;
      for (size_t i = 0; i < state_names_.size(); ++i) {
        const std::string name = prefix + state_names_[i];
        const Tensor saved = take(name);
        slot.state[i] = {};
        if (!saved.defined()) continue;
        if (!(saved.sizes() == slot.parameter.sizes())) {
          fail(ErrorCode::kShape, "[", name_, "] the state's '", name, "' has shape ",
               shape_str(saved.sizes()), ", the parameter's is ",
               shape_str(slot.parameter.sizes()));
        }
        slot.state[i] = zeros_like(slot.parameter);
        slot.state[i].copy_(saved);
      }
    }
  }
  if (!rest.empty()) {
    fail(ErrorCode::kValue, "[", name_, "] the state has '", rest.begin()->first, "'",
         rest.size() == 1 ? "" : absl::StrCat(" and ", rest.size() - 1, " other names"),
         ", which this optimizer does not have");
  }
  for (const auto& [place, value] : numbers) *place = value;
  for (size_t g = 0; g < groups.size(); ++g) refresh_rates(g);
  adopt(std::move(groups));
}

// Captured graphs refer to the existing tensors, so refill these instead of replacing them.
void Optimizer::adopt(std::vector<std::vector<Slot>> groups) {
  NoGradGuard no_grad;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t s = 0; s < groups[g].size(); ++s) {
      Slot& slot = groups[g][s];
      for (size_t i = 0; i < kMaxState; ++i) {
        const Tensor& there = groups_[g][s].state[i];
        if (!there.defined() || !slot.state[i].defined()) continue;
        there.copy_(slot.state[i]);
        slot.state[i] = there;
      }
      if (!slot.counter.defined()) continue;
      const bool together = std::all_of(groups[g].begin(), groups[g].end(), [&](const Slot& other) {
        return !other.counter.is_same(slot.counter) || other.step == slot.step;
      });
      if (together) {
        slot.counter.fill_(slot.step);
      } else {
        slot.counter = {};
      }
    }
  }
  groups_ = std::move(groups);
}

}  // namespace mytorch::nn::optim
