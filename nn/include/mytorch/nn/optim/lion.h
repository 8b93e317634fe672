// Lion.
#pragma once

#include <concepts>
#include <optional>
#include <utility>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct LionArgs {
  double lr = 1e-4;
  Betas betas = {0.9, 0.99};
  double weight_decay = 0;
  bool maximize = false;
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
class LionOptions final : public OptimizerOptionsOf<LionOptions, LionArgs> {
 public:
  using OptimizerOptionsOf::OptimizerOptionsOf;
};

// Chen et al., "Symbolic discovery of optimization algorithms" (NeurIPS 2023). With g the gradient:
//
//   p = p - lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p)
//   m = beta2 * m + (1 - beta2) * g
class Lion final : public OptimizerWith<LionOptions> {
 public:
  explicit Lion(ParamGroups parameters, LionArgs options = {});
  template <class TakesOptionsOf = LionArgs,
            OptionNames Named = "lr, betas, weight_decay, maximize, master_weights, state_dtype">
  Lion(detail::AnyParamGroups, ...) = delete;
  template <std::convertible_to<LionOptions> Options>
  Lion(ParamGroups parameters, const Options& options)
      : Lion(std::move(parameters), LionOptions(options).args()) {}

 private:
  void check(const LionArgs& options) const override;
  void update(const Batch& batch) override;
};

}  // namespace mytorch::nn::optim
