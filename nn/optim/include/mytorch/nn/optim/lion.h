// Lion.
#pragma once

#include <array>
#include <optional>

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
using LionOptions = OptimizerOptionsOf<LionArgs>;

// Chen et al., "Symbolic discovery of optimization algorithms" (NeurIPS 2023). With g the gradient:
//
//   p = p - lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p)
//   m = beta2 * m + (1 - beta2) * g
class Lion final : public OptimizerWith<Lion, LionOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  template <class TakesOptionsOf = LionArgs,
            OptionNames Named = "lr, betas, weight_decay, maximize, master_weights, state_dtype">
  Lion(detail::AnyParamGroups, ...) = delete;

 private:
  friend OptimizerWith;
  static constexpr const char* kName = "Lion";
  static constexpr std::array kState = {"exp_avg"};
  static void check(const LionArgs& options);
  void update(const Batch& batch, const LionArgs& options) override;
};

}  // namespace mytorch::nn::optim
