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
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/empty_like.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/view_as_real.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zero_.h"
#include "mytorch/options_epoch.h"

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
void OptionList::add(const char* name, std::optional<ScalarType>& value) {
  others.emplace_back(name, value ? dtype_name(*value) : "none");
}
void OptionList::add(const char* name, FactoredEps& value) {
  const auto& [first, second] = value;
  others.emplace_back(name,
                      absl::StrCat("(", first ? absl::StrCat(*first) : "none", ", ", second, ")"));
}
void OptionList::add(const char* name, Quintic& value) {
  const auto& [a, b, c] = value;
  others.emplace_back(name, absl::StrCat("(", a, ", ", b, ", ", c, ")"));
}

OptimizerParamGroup::OptimizerParamGroup(std::vector<Tensor> params,
                                         std::unique_ptr<OptimizerOptions> options)
    : params_(std::move(params)), options_(std::move(options)) {}
OptimizerParamGroup::OptimizerParamGroup(std::initializer_list<Tensor> params) : params_(params) {}
OptimizerParamGroup::OptimizerParamGroup(const OptimizerParamGroup& other)
    : params_(other.params_), options_(other.options_ ? other.options_->clone() : nullptr) {}
OptimizerParamGroup::OptimizerParamGroup(OptimizerParamGroup&& other) noexcept = default;
OptimizerParamGroup& OptimizerParamGroup::operator=(OptimizerParamGroup other) {
  params_ = std::move(other.params_);
  options_ = std::move(other.options_);
  return *this;
}
OptimizerParamGroup::~OptimizerParamGroup() = default;
void OptimizerParamGroup::set_options(std::unique_ptr<OptimizerOptions> options) {
  options_ = std::move(options);
}

ParamGroups::ParamGroups(std::vector<Tensor> params) { groups_.emplace_back(std::move(params)); }
ParamGroups::ParamGroups(std::initializer_list<Tensor> params) { groups_.emplace_back(params); }
ParamGroups::ParamGroups(std::vector<OptimizerParamGroup> groups) : groups_(std::move(groups)) {}
ParamGroups::ParamGroups(std::initializer_list<OptimizerParamGroup> groups) : groups_(groups) {}
ParamGroups::ParamGroups(const ParamGroups& other) = default;
ParamGroups::ParamGroups(ParamGroups&& other) noexcept = default;
ParamGroups& ParamGroups::operator=(ParamGroups other) {
  groups_ = std::move(other.groups_);
  return *this;
}
ParamGroups::~ParamGroups() = default;

// Whoever takes the options may change them, at any time until the next step.
OptimizerOptions& OptimizerParamGroup::options() {
  options_changed();
  if (options_ == nullptr) {
    fail(ErrorCode::kValue,
         "[OptimizerParamGroup] the group has no options: give them, or add it to an optimizer");
  }
  return *options_;
}
const OptimizerOptions& OptimizerParamGroup::options() const {
  if (options_ == nullptr) const_cast<OptimizerParamGroup*>(this)->options();  // throws
  return *options_;
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
    fail(ErrorCode::kValue, "[", name_,
         "] there are no parameters to optimize: register the layers of the model, as in "
         "register_module(\"fc\", fc)");
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
    fail(ErrorCode::kValue, "[", name_,
         "] there are no parameters to optimize: register the layers of the model, as in "
         "register_module(\"fc\", fc)");
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

namespace {

bool has_16_bits(ScalarType dtype) { return dtype == kBFloat16 || dtype == kFloat16; }

// Steps with conversions process batches of at most this number of elements, so that little memory
// is needed for the converted tensors.
constexpr int64_t kMaxConverted = int64_t{1} << 22;

constexpr const char* kMasterName = "master_weight";  // in state_dict

}  // namespace

Tensor Optimizer::as_reals(const Tensor& x) {
  return x.is_complex() ? view_as_real(x.detach()) : x;
}

Optimizer::StateLayout Optimizer::state_layout(size_t, const Tensor& parameter) const {
  const IntList sizes = parameter.sizes();
  return {.shape = {sizes.begin(), sizes.end()}};
}

Optimizer::Types Optimizer::types(size_t group, const Tensor& parameter) const {
  const OptimizerOptions& options = param_groups_[group].options();
  ScalarType update = to_real(parameter.dtype());
  if (has_16_bits(update) && options.get_master_weights()) update = kFloat32;
  const ScalarType state = options.get_state_dtype().value_or(update);
  return {.update = promote_types(update, state), .state = state};
}

// Converts the state of a parameter that has changed its type or device. Slots share counters, so
// these stay the same tensors.
void Optimizer::follow(size_t group, Slot& slot) const {
  const Device device = slot.parameter.device();
  const Types types = this->types(group, slot.parameter);
  const auto move = [&](Tensor& tensor, ScalarType dtype) {
    if (!tensor.defined() || (tensor.dtype() == dtype && tensor.device() == device)) return;
    tensor.set_data(tensor.to(device, dtype));
  };
  for (size_t i = 0; i < state_names_.size(); ++i) {
    move(slot.state[i], state_layout(i, slot.parameter).number ? kFloat64 : types.state);
  }
  if (slot.counter.defined()) move(slot.counter, slot.counter.dtype());
  if (!has_16_bits(slot.parameter.dtype()) ||
      !param_groups_[group].options().get_master_weights()) {
    slot.master = {};
    return;
  }
  if (slot.master.defined()) {
    move(slot.master, kFloat32);
    if (slot.version == slot.parameter.version()) return;
    const Tensor same = eq(slot.master.to(slot.parameter.dtype()), slot.parameter.detach());
    slot.master.copy_(where(same, slot.master, slot.parameter.detach().to(kFloat32)));
  } else {
    run_uncaptured(device, [&] { slot.master = slot.parameter.detach().to(kFloat32); });
  }
}

// Adds a slot to the batch, in the type of the update.
void Optimizer::take(Batch& batch, Slot& slot) const {
  const ScalarType update = types(batch.group, slot.parameter).update;
  Tensor parameter = as_reals(slot.parameter);
  if (batch.rounds) {
    batch.slots.push_back(&slot);
    const Tensor gradient = slot.parameter.grad();
    batch.gradients.push_back(gradient.dtype() == slot.parameter.dtype() ? gradient
                                                                         : gradient.to(update));
    batch.parameters.push_back(slot.master);
    batch.rounded.push_back(slot.parameter);
    return;
  }
  if (slot.master.defined()) {
    batch.conversions.emplace_back(slot.master, slot.parameter);
    parameter = slot.master;
  }
  if (parameter.dtype() != update) {
    const Tensor converted = parameter.detach().to(update);
    batch.conversions.insert(batch.conversions.begin(), {converted, parameter});
    parameter = converted;
  }
  batch.slots.push_back(&slot);
  batch.gradients.push_back(as_reals(slot.parameter.grad()).to(update));
  batch.parameters.push_back(std::move(parameter));
}

void Optimizer::step() {
  NoGradGuard no_grad;
  for (size_t g = 0; g < groups_.size(); ++g)
    check_options(std::as_const(param_groups_[g]).options());
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<Batch> batches;
    for (Slot& slot : groups_[g]) {
      if (!slot.parameter.grad().defined()) continue;
      follow(g, slot);
      const Device device = slot.parameter.device();
      const auto [update, state] = types(g, slot.parameter);
      // Master weights may be rounded in the pass that updates them.
      const bool rounded = rounds() && slot.master.defined() && update == kFloat32;
      const bool converted =
          update != state || (!rounded && update != to_real(slot.parameter.dtype()));
      auto batch = std::find_if(batches.begin(), batches.end(), [&](const Batch& known) {
        const Slot& other = *known.slots[0];
        return other.step == slot.step && other.counter.is_same(slot.counter) &&
               other.parameter.device() == device && known.converted == converted &&
               known.rounds == rounded;
      });
      if (batch == batches.end()) {
        batch = batches.insert(batch, {.optimizer = this,
                                       .group = g,
                                       .lr = rate(g, device),
                                       .converted = converted,
                                       .rounds = rounded});
      }
      batch->slots.push_back(&slot);
    }
    for (Batch& batch : batches) run(batch);
  }
}

// Updates the slots of the batch, in parts if there are conversions.
void Optimizer::run(Batch& batch) {
  count(batch);
  const std::vector<Slot*> slots = std::move(batch.slots);
  for (size_t done = 0; done < slots.size();) {
    batch.slots.clear();
    batch.parameters.clear();
    batch.gradients.clear();
    batch.rounded.clear();
    batch.conversions.clear();
    for (int64_t elements = 0; done < slots.size(); ++done) {
      Slot& slot = *slots[done];
      elements += slot.parameter.numel();
      if (batch.converted && !batch.slots.empty() && elements > kMaxConverted) break;
      take(batch, slot);
    }
    update(batch);
    for (const auto& [from, to] : batch.conversions) to.detach().copy_(from);
    for (Slot* slot : batch.slots) slot->version = slot->parameter.version();
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
  Slot& one = *batch.slots[0];
  const Device device = one.parameter.device();
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
  for (size_t slot = 0; slot < slots.size(); ++slot) list.push_back(state_of(slot, i, value));
  return list;
}

Tensor Optimizer::Batch::state_of(size_t slot, size_t i, double value) const {
  Tensor& state = slots[slot]->state[i];
  if (!state.defined()) {
    const Tensor parameter = as_reals(slots[slot]->parameter);
    run_uncaptured(parameter.device(), [&] {
      state = optimizer->empty_state(group, i, parameter);
      state.fill_(value);
    });
  }
  const ScalarType update = parameters[slot].dtype();
  if (!converted || state.dtype() == update || state.dtype() == kFloat64) return state;
  Tensor taken = state.to(update);
  conversions.emplace_back(taken, state);
  return taken;
}

// Returns the tensor of state i, uninitialized.
Tensor Optimizer::empty_state(size_t group, size_t i, const Tensor& parameter) const {
  const StateLayout layout = state_layout(i, parameter);
  const ScalarType dtype = layout.number ? kFloat64 : types(group, parameter).state;
  if (IntList(layout.shape) == parameter.sizes()) return empty_like(parameter.detach(), dtype);
  return empty(layout.shape, dtype, parameter.device());
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

// The list has writable pointers; const callers only read them.
OptionList Optimizer::list(size_t group) const {
  check_group(group);
  OptionList list;
  const_cast<OptimizerOptions&>(param_groups_[group].options()).list(list);
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
    check_options(param_groups_[group].options());  // counts as a change
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
  options_changed();
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
      if (slot.master.defined()) state[prefix + kMasterName] = slot.master.detach();
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
      const auto load = [&](const char* state_name, IntList shape, const auto& make) {
        const std::string name = prefix + state_name;
        const Tensor saved = take(name);
        Tensor loaded;
        if (!saved.defined()) return loaded;
        if (!(saved.sizes() == shape)) {
          fail(ErrorCode::kShape, "[", name_, "] the state's '", name, "' has shape ",
               shape_str(saved.sizes()), ", the parameter's is ", shape_str(shape));
        }
        loaded = make();
        loaded.copy_(saved);
        return loaded;
      };
      for (size_t i = 0; i < state_names_.size(); ++i) {
        const Tensor parameter = as_reals(slot.parameter);
        slot.state[i] = load(state_names_[i], state_layout(i, parameter).shape,
                             [&] { return empty_state(g, i, parameter); });
      }
      slot.master = {};
      if (has_16_bits(slot.parameter.dtype()) && param_groups_[g].options().get_master_weights()) {
        slot.master = load(kMasterName, slot.parameter.sizes(),
                           [&] { return empty_like(slot.parameter.detach(), kFloat32); });
        slot.version = slot.parameter.version() - 1;  // compares the parameter with its master
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
      const auto keep = [](const Tensor& there, Tensor& loaded) {
        if (!there.defined() || !loaded.defined()) return;
        there.copy_(loaded);
        loaded = there;
      };
      for (size_t i = 0; i < kMaxState; ++i) keep(groups_[g][s].state[i], slot.state[i]);
      keep(groups_[g][s].master, slot.master);
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
