// Values that captured steps read from the device: step counts and learning rates.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor/capture_layer.h"
#include "mytorch/grad_mode.h"
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
  for (const Rate& known : rates_[group]) {
    if (known.tensor.device() != device) continue;
    refresh_rates(group);
    return Operand(known.tensor);
  }
  const double lr = group_options(group).get_lr();
  if (!is_capturing(device)) return Operand(Scalar(lr));
  run_uncaptured(device, [&] {
    rates_[group].push_back({full(IntList(nullptr, 0), lr, kFloat64, device), lr});
  });
  return Operand(rates_[group].back().tensor);
}

// Writes a rate that was changed, by set_lr or through a reference to the options.
void Optimizer::refresh_rates(size_t group) {
  if (group >= rates_.size()) return;
  const double lr = group_options(group).get_lr();
  for (Rate& rate : rates_[group]) {
    if (rate.value == lr) continue;
    run_uncaptured(rate.tensor.device(), [&] { rate.tensor.fill_(lr); });
    rate.value = lr;
  }
}

// The options of an optimizer at the time of a recorded step. References to the options may be used
// at any time, so each call compares them.
class Optimizer::RecordedOptions final : public RecordedState {
 public:
  RecordedOptions(const Optimizer& optimizer, bool rate)
      : optimizer_(optimizer.self_), rate_(rate) {
    for (size_t g = 0; g < optimizer.num_groups(); ++g) {
      const OptimizerOptions& options = std::as_const(optimizer.param_groups_[g]).options();
      groups_.push_back({&options, optimizer.list(g), options.clone(), {}});
      groups_.back().copy->list(groups_.back().recorded);
    }
  }

  const char* refresh() override {
    Optimizer* const optimizer = *optimizer_;
    if (optimizer == nullptr) return "an optimizer was destroyed";
    if (optimizer->param_groups_.size() != groups_.size()) {
      return "an optimizer has another group";
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (&std::as_const(optimizer->param_groups_[g]).options() != groups_[g].options) {
        return "a group of an optimizer has other options";
      }
      if (!groups_[g].same_but_lr()) return "an option of an optimizer has changed";
      const double lr = groups_[g].options->get_lr();
      if (!rate_ && g < optimizer->rates_.size() && !optimizer->rates_[g].empty()) {
        if (lr != optimizer->rates_[g][0].value) {
          const NoGradGuard no_grad;
          optimizer->refresh_rates(g);
        }
      } else if (lr != groups_[g].copy->get_lr()) {
        return "the learning rate of an optimizer has changed";
      }
    }
    return nullptr;
  }

 private:
  struct Group {
    const OptimizerOptions* options;
    OptionList now;  // refers to them
    std::unique_ptr<OptimizerOptions> copy;
    OptionList recorded;  // refers to the copy

    bool same_but_lr() const {
      for (size_t i = 0; i < now.numbers.size(); ++i) {
        if (*now.numbers[i].value != *recorded.numbers[i].value &&
            std::string_view(now.numbers[i].name) != "lr") {
          return false;
        }
      }
      for (size_t i = 0; i < now.others.size(); ++i) {
        if (!now.others[i].same(now.others[i].value, recorded.others[i].value)) return false;
      }
      return true;
    }
  };
  std::shared_ptr<Optimizer*> optimizer_;
  bool rate_;  // whether the learning rate is a number of the recording
  std::vector<Group> groups_;
};

void Optimizer::note_recorded(bool rate) const {
  if (!recording_graph()) return;
  const uint64_t recording = capture_table->recording();
  if (std::exchange(noted_in_[rate ? 1 : 0], recording) == recording) return;
  if (self_ == nullptr) self_ = std::make_shared<Optimizer*>(const_cast<Optimizer*>(this));
  capture_table->depends(std::make_shared<RecordedOptions>(*this, rate));
}

}  // namespace mytorch::nn::optim
