// Optimizers whose state is divided among the ranks.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/nn/optim/lbfgs.h"
#include "mytorch/nn/optim/optimizer.h"
#include "mytorch/nn/serialize.h"

namespace mytorch::nn {
namespace detail {

// Which rank updates which parameter.
class OptimizerShards {
 public:
  // Divides them among `owners`, or all ranks. `op` begins messages.
  OptimizerShards(optim::ParamGroups parameters, const distributed::Group& group,
                  std::vector<int> owners = {}, const char* op = "ZeroRedundancyOptimizer");
  // This rank's parameters, in the same groups. A group of which it has none has one tensor without
  // elements.
  optim::ParamGroups own() const { return own(parameters_); }
  // The same with other tensors in their places, by number; those of other ranks are not read.
  optim::ParamGroups own(const std::vector<Tensor>& tensors) const;
  // All parameters, in the same groups.
  optim::ParamGroups all() const;
  // Gives all ranks the parameters of each. Collective.
  void share() const;
  void zero_grad(bool set_to_none) const;
  // From the names of this rank's optimizer to those of one with all parameters, and back.
  TensorMap with_whole_names(const TensorMap& own) const;
  TensorMap with_own_names(const TensorMap& whole) const;
  const std::vector<Tensor>& parameters() const { return parameters_; }
  int owner(size_t number) const { return owners_[number]; }
  const distributed::Group& group() const { return group_; }

 private:
  const char* op_;
  distributed::Group group_;
  std::vector<optim::OptimizerParamGroup> groups_;
  std::vector<Tensor> parameters_;  // of all groups
  std::vector<int> owners_;
  std::vector<size_t> numbers_;  // of the parameters of this rank's optimizer; or kNone
};

}  // namespace detail

// An optimizer of class O that updates on each rank some of the parameters, and keeps the state of
// these alone (ZeRO, stage 1; Rajbhandari et al., SC 2020). Then the ranks broadcast their
// parameters. Parameters and gradients are whole on all ranks, as DistributedDataParallel leaves
// them, and the results are those of O. The ranks have about equally many elements; a parameter is
// not divided.
//
//   nn::DistributedDataParallel parallel(net);
//   nn::ZeroRedundancyOptimizer<nn::optim::AdamW> optimizer(net.parameters(), {.lr = 1e-3});
//   loss(parallel(input), target).backward();
//   optimizer.step();
//
// What works on parameters or gradients, as clip_grad_norm_, is given those of the module. A
// schedule is given local(), on every rank. GradScaler looks at the gradients of its optimizer
// alone, which are not all of them here: do not give it local().
template <class O>
class ZeroRedundancyOptimizer {
 public:
  static_assert(!std::is_same_v<O, optim::LBFGS>,
                "LBFGS updates all parameters together: they cannot be divided among ranks");
  using Args = typename O::Args;
  explicit ZeroRedundancyOptimizer(optim::ParamGroups parameters, Args options = {},
                                   const distributed::Group& group = {})
      : shards_(std::move(parameters), group), local_(checked(shards_, options), options) {}

  // Performs one update. Collective.
  void step() {
    local_.step();
    shards_.share();
  }
  // Clears the gradients of all parameters, or fills them with zeros.
  void zero_grad(bool set_to_none = true) { shards_.zero_grad(set_to_none); }

  // The optimizer of this rank's parameters. Options are changed on all ranks.
  O& local() { return local_; }
  const O& local() const { return local_; }
  // All parameters, and the rank that updates one of them.
  const std::vector<Tensor>& parameters() const { return shards_.parameters(); }
  int owner(size_t parameter) const { return shards_.owner(parameter); }

  // This rank's part of the state, by the names of an O with all parameters, whose state is that of
  // all ranks together.
  TensorMap state_dict() const { return shards_.with_whole_names(local_.state_dict()); }
  // Takes this rank's part of such a state, which may be that of other ranks or of an O, too.
  void load_state_dict(const TensorMap& state) {
    local_.load_state_dict(shards_.with_own_names(state));
  }

 private:
  // Lets all ranks refuse what O refuses of any parameter. O makes no state before its first step.
  static optim::ParamGroups checked(const detail::OptimizerShards& shards, const Args& options) {
    const O of_all(shards.all(), options);
    return shards.own();
  }

  detail::OptimizerShards shards_;
  O local_;
};

}  // namespace mytorch::nn
