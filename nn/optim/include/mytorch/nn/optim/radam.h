// RAdam.
#pragma once

#include <array>
#include <optional>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct RAdamArgs {
  double lr = 1e-3;
  Betas betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;
  bool maximize = false;
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
using RAdamOptions = OptimizerOptionsOf<RAdamArgs>;

// Liu et al., "On the variance of the adaptive learning rate and beyond" (ICLR 2020). With g the
// gradient plus weight_decay * p, in step t = 1, 2, ...:
//
//   m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2
//   R = 2 / (1 - beta2) - 1,   r = R - 2 * t * beta2^t / (1 - beta2^t)
//   c = sqrt((r - 4) * (r - 2) * R / ((R - 4) * (R - 2) * r))
//   p = p - lr * m / (1 - beta1^t) * (r > 5 ? c * sqrt(1 - beta2^t) / (sqrt(v) + eps) : 1)
//
// With decoupled_weight_decay, g is the gradient alone, and p = p * (1 - lr * weight_decay) is
// applied first.
class RAdam final : public OptimizerWith<RAdam, RAdamOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  template <class TakesOptionsOf = RAdamArgs,
            OptionNames Named =
                "lr, betas, eps, weight_decay, decoupled_weight_decay, maximize, "
                "master_weights, state_dtype">
  RAdam(detail::AnyParamGroups, ...) = delete;

 private:
  friend OptimizerWith;
  static constexpr const char* kName = "RAdam";
  static constexpr std::array kState = {"exp_avg", "exp_avg_sq"};
  static void check(const RAdamArgs& options);
  void update(const Batch& batch, const RAdamArgs& options) override;
};

}  // namespace mytorch::nn::optim
