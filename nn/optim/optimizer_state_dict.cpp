// The state of an optimizer by name.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/archive.h"
#include "mytorch/nn/optim/optimizer.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty_like.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/options_epoch.h"

namespace mytorch::nn::optim {
namespace {

constexpr const char* kMasterName = "master_weight";

// Takes tensors of a state by name, each once.
class StateReader {
 public:
  StateReader(const char* optimizer, const TensorMap& state)
      : optimizer_(optimizer), rest_(state.begin(), state.end()) {}

  // Returns an undefined tensor if the state has none of this name.
  Tensor take(const std::string& name) {
    const auto found = rest_.find(name);
    if (found == rest_.end()) return {};
    Tensor tensor = found->second;
    rest_.erase(found);
    if (!tensor.defined()) {
      fail(ErrorCode::kValue, "[", optimizer_, "] the state's '", name, "' is undefined");
    }
    return tensor;
  }

  Tensor take_number(const std::string& name) {
    Tensor tensor = take(name);
    if (tensor.defined() && tensor.numel() != 1) {
      fail(ErrorCode::kShape, "[", optimizer_, "] the state's '", name, "' has shape ",
           shape_str(tensor.sizes()), " and is no single number");
    }
    return tensor;
  }

  // Copies the tensor to the one that `make` returns.
  template <class Make>
  Tensor take_copy(const std::string& name, IntList shape, const Make& make) {
    const Tensor saved = take(name);
    if (!saved.defined()) return {};
    if (!(saved.sizes() == shape)) {
      fail(ErrorCode::kShape, "[", optimizer_, "] the state's '", name, "' has shape ",
           shape_str(saved.sizes()), ", the parameter's is ", shape_str(shape));
    }
    Tensor copy = make();
    copy.copy_(saved);
    return copy;
  }

  // Throws Error(kValue) if there are names that were not taken.
  void finish() const {
    if (rest_.empty()) return;
    fail(ErrorCode::kValue, "[", optimizer_, "] the state has '", rest_.begin()->first, "'",
         rest_.size() == 1 ? "" : absl::StrCat(" and ", rest_.size() - 1, " other names"),
         ", which this optimizer does not have");
  }

 private:
  const char* optimizer_;
  std::map<std::string, Tensor> rest_;
};

}  // namespace

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
  StateReader reader(name_, state);
  // Read everything before the first change.
  std::vector<std::pair<double*, double>> numbers;
  std::vector<std::vector<Slot>> groups = groups_;
  size_t index = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const OptionList options = list(g);
    for (const OptionList::Number& number : options.numbers) {
      const std::string name = absl::StrCat("group", g, ".", number.name);
      const Tensor value = reader.take_number(name);
      if (!value.defined()) {
        fail(ErrorCode::kValue, "[", name_, "] the state has no '", name, "'");
      }
      numbers.emplace_back(number.value, value.item<double>());
    }
    for (Slot& slot : groups[g]) {
      const std::string prefix = absl::StrCat("parameter", index++, ".");
      const Tensor step = reader.take_number(prefix + "step");
      slot.step = step.defined() ? step.item<int64_t>() : 0;
      for (size_t i = 0; i < state_names_.size(); ++i) {
        const Tensor parameter = as_reals(slot.parameter);
        slot.state[i] = reader.take_copy(prefix + state_names_[i], state_layout(i, parameter).shape,
                                         [&] { return empty_state(g, i, parameter); });
      }
      slot.master = {};
      if (keeps_master(g, slot.parameter)) {
        slot.master = reader.take_copy(prefix + kMasterName, slot.parameter.sizes(), [&] {
          return empty_like(slot.parameter.detach(), kFloat32);
        });
        slot.version = slot.parameter.version() - 1;  // compares the parameter with its master
      }
    }
  }
  reader.finish();
  for (const auto& [place, value] : numbers) *place = value;
  for (size_t g = 0; g < groups.size(); ++g) refresh_rates(g);
  adopt(std::move(groups));
  options_changed();  // compiled steps are recorded again, with the new numbers and state
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

void Optimizer::save(serialize::OutputArchive& archive) const {
  for (const auto& [name, tensor] : state_dict()) archive.write(name, tensor);
}

void Optimizer::load(const serialize::InputArchive& archive) { load_state_dict(archive.tensors()); }

}  // namespace mytorch::nn::optim
