// What optimizers have in common.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/nn/serialize.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::optim {

// Changes parameters by their gradients:
//
//   SGD sgd(model.parameters(), {.lr = 0.1, .momentum = 0.9});
//   for (const auto& [x, y] : loader) {
//     sgd.zero_grad();
//     cross_entropy(model(x), y).backward();
//     sgd.step();
//   }
//
// Parameters are in groups, each with options of its own: `sgd.add_group(head.parameters(), {.lr =
// 0.01})`. They are changed in place, so the optimizer has to be made after the model was moved.
//
// A step may be recorded into a Graph. Replays count as steps; they read the learning rate that
// set_lr (or a schedule, stepped between replays) has left, and all other options as they were.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Passes over parameters without a gradient.
  void step();
  // Forgets the gradients, so that the next backward sets them.
  void zero_grad();

  size_t num_groups() const { return groups_.size(); }
  std::vector<Tensor> parameters(size_t group) const;
  // The options that schedules change. `momentum` is beta1 of the optimizers that have that, 0 for
  // those without either; setting it is then an Error(kUnsupported).
  double lr(size_t group = 0) const;
  void set_lr(size_t group, double lr);
  double momentum(size_t group = 0) const;
  void set_momentum(size_t group, double momentum);

  // The numbers among the options ("group0.lr") and what has been accumulated for each parameter,
  // by its place in the order of all groups ("parameter0.momentum").
  TensorMap state_dict() const;
  // Throws Error(kValue, kShape) and changes nothing unless the names and shapes are those of an
  // optimizer of the same class and parameters.
  void load_state_dict(const TensorMap& state);

 protected:
  static constexpr size_t kMaxState = 3;
  struct Slot {
    Tensor parameter;
    std::array<Tensor, kMaxState> state;  // of the parameter's shape and type
    int64_t step = 0;                     // steps so far
    // Once a step was recorded: their number in device memory, in place of `step`. Of all slots
    // that step together.
    Tensor counter = {};
    int64_t steps() const { return counter.defined() ? counter.item<int64_t>() : step; }
  };
  // Slots of a group that are on one device and have come to the same step.
  struct Batch {
    size_t group;
    Operand lr;
    std::vector<Slot*> slots = {};
    std::vector<Tensor> parameters = {};
    std::vector<Tensor> gradients = {};
    Operand step = {};   // this one included
    bool first = false;  // whether it is the first step
    // State i of each slot, made of `value` where there is none yet.
    std::vector<Tensor> state(size_t i, double value = 0) const;
  };
  struct Number {
    const char* name;
    double* value;
  };
  using Numbers = std::vector<Number>;

  // `state_names`: of Slot::state, as many as it uses.
  Optimizer(const char* name, std::vector<const char*> state_names);
  // Throws Error(kValue), and adds nothing, for parameters that cannot be optimized.
  void append_group(std::vector<Tensor> parameters);
  // Whether `value` is what a bound says: throws Error(kValue) naming the option otherwise.
  void check_option(bool good, const char* option, double value, const char* bound) const;

  // Changes the parameters by the gradients, inside NoGradGuard.
  virtual void update(const Batch& batch) = 0;
  virtual Numbers numbers(size_t group) = 0;

 private:
  using Rates = std::vector<Tensor>;  // a group's learning rate, on each device that wants it

  void count(Batch& batch);
  Operand rate(size_t group, Device device);
  void refresh_rates(size_t group);
  void adopt(std::vector<std::vector<Slot>> groups);
  double* find(size_t group, const char* a, const char* b) const;
  Numbers numbers_of(size_t group) const;
  void check_group(size_t group) const;

  const char* name_;
  std::vector<const char*> state_names_;
  std::vector<std::vector<Slot>> groups_;
  std::vector<Rates> rates_;
};

// Keeps the options of each group.
template <class Options>
class OptimizerWith : public Optimizer {
 public:
  void add_group(std::vector<Tensor> parameters, Options options) {
    check(options);
    append_group(std::move(parameters));
    options_.push_back(options);
  }
  const Options& options(size_t group = 0) const { return options_.at(group); }

 protected:
  using Optimizer::Optimizer;
  virtual void check(const Options& options) const = 0;
  std::vector<Options> options_;
};

}  // namespace mytorch::nn::optim
