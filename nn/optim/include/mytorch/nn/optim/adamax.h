// Adamax.
#pragma once

#include <array>
#include <optional>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct AdamaxArgs {
  double lr = 2e-3;
  Betas betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
using AdamaxOptions = OptimizerOptionsOf<AdamaxArgs>;

// Kingma and Ba, "Adam: a method for stochastic optimization" (ICLR 2015), section 7.1. With g the
// gradient plus weight_decay * p, in step t = 1, 2, ...:
//
//   m = beta1 * m + (1 - beta1) * g,   s = max(beta2 * s, |g| + eps)
//   p = p - lr / (1 - beta1^t) * m / s
class Adamax final : public OptimizerWith<Adamax, AdamaxOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  template <
      class TakesOptionsOf = AdamaxArgs,
      OptionNames Named = "lr, betas, eps, weight_decay, maximize, master_weights, state_dtype">
  Adamax(detail::AnyParamGroups, ...) = delete;

 private:
  friend OptimizerWith;
  static constexpr const char* kName = "Adamax";
  static constexpr std::array kState = {"exp_avg", "exp_inf"};
  static void check(const AdamaxArgs& options);
  void update(const Batch& batch, const AdamaxArgs& options) override;
};

}  // namespace mytorch::nn::optim
