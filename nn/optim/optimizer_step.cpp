// One update: master weights, conversions, and the batches of parameters that step together.
#include <algorithm>
#include <utility>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/graph.h"
#include "mytorch/nn/optim/optimizer.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/view_as_real.h"
#include "mytorch/ops/where.h"

namespace mytorch::nn::optim {
namespace {

// Steps with conversions process batches of at most this number of elements, so that little memory
// is needed for the converted tensors.
constexpr int64_t kMaxConverted = int64_t{1} << 22;

}  // namespace

Tensor Optimizer::as_reals(const Tensor& x) {
  return x.is_complex() ? view_as_real(x.detach()) : x;
}

bool Optimizer::keeps_master(size_t group, const Tensor& parameter) const {
  const bool has_16_bits = parameter.dtype() == kBFloat16 || parameter.dtype() == kFloat16;
  return has_16_bits && param_groups_[group].options().get_master_weights();
}

Optimizer::Types Optimizer::types(size_t group, const Tensor& parameter) const {
  const OptimizerOptions& options = param_groups_[group].options();
  const ScalarType update = keeps_master(group, parameter) ? kFloat32 : to_real(parameter.dtype());
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
    // A step that is recorded begins with the converted state.
    run_uncaptured(device, [&] { tensor.set_data(tensor.to(device, dtype)); });
  };
  for (size_t i = 0; i < state_names_.size(); ++i) {
    move(slot.state[i], state_layout(i, slot.parameter).number ? kFloat64 : types.state);
  }
  if (slot.counter.defined()) move(slot.counter, slot.counter.dtype());
  if (!keeps_master(group, slot.parameter)) {
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
  note_recorded(/*rate=*/false);
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
    update_batch(batch);
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

}  // namespace mytorch::nn::optim
