// Values that captured steps read from the device: step counts and learning rates.
#include <algorithm>
#include <cstddef>

#include "mytorch/graph.h"
#include "mytorch/nn/optim/optimizer.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/full.h"
#include "mytorch/options_epoch.h"

namespace mytorch::nn::optim {

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
    // There is no counter yet, or it also counts the steps of other slots, which recorded steps
    // would count on.
    if (one.counter.defined()) options_changed();
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

}  // namespace mytorch::nn::optim
