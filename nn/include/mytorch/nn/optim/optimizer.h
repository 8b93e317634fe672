// The base class of all optimizers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mytorch/nn/serialize.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::optim {

// Updates parameters from their gradients:
//
//   SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
//   for (const auto& [x, y] : loader) {
//     sgd.zero_grad();
//     cross_entropy(model(x), y).backward();
//     sgd.step();
//   }
//
// Parameters belong to groups, each with its own options: `sgd.add_group(head.parameters(), {.lr =
// 0.01})`. Options may be changed between steps: `sgd.options(1).weight_decay = 0`. Parameters are
// updated in place. The state follows them when Module::to moves or converts them; a captured step
// must then be captured again.
//
// step() may be captured in a Graph. Each replay counts as a step and reads the current learning
// rate, as set by set_lr or by a schedule between replays. All other options keep the values they
// had during capture.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Performs one update. Skips parameters without a gradient.
  void step();
  // Calls `closure`, which clears the gradients, computes the loss and calls backward(); performs
  // one update, and returns the loss.
  virtual Tensor step(const std::function<Tensor()>& closure);
  // Clears the gradients, so that the next backward sets them; or, unless `set_to_none`, fills them
  // with zeros.
  void zero_grad(bool set_to_none = true);

  size_t num_groups() const { return groups_.size(); }
  std::vector<Tensor> parameters(size_t group) const;
  // The options that schedules change. `momentum` is beta1 for Adam and AdamW. Optimizers without
  // momentum return 0 and throw Error(kUnsupported) from set_momentum.
  double lr(size_t group = 0) const;
  void set_lr(size_t group, double lr);
  double momentum(size_t group = 0) const;
  void set_momentum(size_t group, double momentum);

  // The numeric options of a group, by name. Throw Error(kValue), listing the names, for another.
  double option(size_t group, std::string_view name) const;
  void set_option(size_t group, std::string_view name, double value);
  // Returns the class, and the options of each group.
  std::string str() const;

  // Returns the numeric options of each group ("group0.lr") and the state of each parameter,
  // numbered across all groups ("parameter0.momentum").
  TensorMap state_dict() const;
  // Throws Error(kValue or kShape) and changes nothing if the names and shapes do not match those
  // of an optimizer of this class with these parameters.
  void load_state_dict(const TensorMap& state);

 protected:
  static constexpr size_t kMaxState = 3;
  struct Slot {
    Tensor parameter;
    std::array<Tensor, kMaxState> state;  // with the parameter's shape and type
    int64_t step = 0;                     // number of steps so far
    // The step count in device memory, in place of `step`, once a step was captured. Shared by all
    // slots that step together.
    Tensor counter = {};
    int64_t steps() const { return counter.defined() ? counter.item<int64_t>() : step; }
  };
  // Slots of one group on one device with the same step count.
  struct Batch {
    size_t group;
    Operand lr;
    std::vector<Slot*> slots = {};
    std::vector<Tensor> parameters = {};
    std::vector<Tensor> gradients = {};
    Operand step = {};   // including this one
    bool first = false;  // whether this is the first step
    // Returns state i of each slot, creating it with the given value if missing.
    std::vector<Tensor> state(size_t i, double value = 0) const;
  };
  struct Number {
    const char* name;
    double* value;
  };
  using Numbers = std::vector<Number>;
  using Flags = std::vector<std::pair<const char*, bool>>;

  // `state_names` names the elements of Slot::state that are used.
  Optimizer(const char* name, std::vector<const char*> state_names);
  // Throws Error(kValue), and adds nothing, if a tensor cannot be optimized.
  void append_group(std::vector<Tensor> parameters);
  // Throws Error(kValue), naming option, value and bound, unless `good`.
  void check_group(size_t group) const;
  void check_option(bool good, const char* option, double value, const char* bound) const;

  // Updates the parameters of a batch. Called under NoGradGuard.
  virtual void update(const Batch& batch) = 0;
  virtual Numbers numbers(size_t group) = 0;
  virtual Flags flags(size_t group) const;
  // Throws Error(kValue) if an option has no meaning.
  virtual void check_group_options(size_t group) const = 0;

 private:
  using Rates = std::vector<Tensor>;  // a group's learning rate, on each device that reads it

  static void follow(Slot& slot);
  void count(Batch& batch);
  Operand rate(size_t group, Device device);
  void refresh_rates(size_t group);
  void adopt(std::vector<std::vector<Slot>> groups);
  double* find(size_t group, std::string_view a, std::string_view b) const;
  double* need(size_t group, std::string_view name) const;
  Numbers numbers_of(size_t group) const;

  const char* name_;
  std::vector<const char*> state_names_;
  std::vector<std::vector<Slot>> groups_;
  std::vector<Rates> rates_;
};

// Stores the options of each group.
template <class Options>
class OptimizerWith : public Optimizer {
 public:
  void add_group(std::vector<Tensor> parameters, Options options) {
    check(options);
    append_group(std::move(parameters));
    options_.push_back(std::move(options));
  }
  // Uses the options of the first group.
  void add_group(std::vector<Tensor> parameters) { add_group(std::move(parameters), options_[0]); }
  // PyTorch's name of add_group.
  void add_param_group(std::vector<Tensor> parameters, Options options) {
    add_group(std::move(parameters), std::move(options));
  }
  void add_param_group(std::vector<Tensor> parameters) { add_group(std::move(parameters)); }

  // The options of a group. Changes take effect in the next step(), which throws Error(kValue) if
  // they have no meaning; a learning rate that a captured step reads changes by set_lr alone.
  const Options& options(size_t group = 0) const {
    check_group(group);
    return options_[group];
  }
  Options& options(size_t group = 0) {
    check_group(group);
    return options_[group];
  }

 protected:
  using Optimizer::Optimizer;
  virtual void check(const Options& options) const = 0;
  void check_group_options(size_t group) const final { check(options_[group]); }
  std::vector<Options> options_;
};

std::ostream& operator<<(std::ostream& out, const Optimizer& optimizer);

}  // namespace mytorch::nn::optim
