// NAdam.
#pragma once

#include <array>
#include <optional>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct NAdamArgs {
  double lr = 2e-3;
  Betas betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;
  bool maximize = false;
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
using NAdamOptions = OptimizerOptionsOf<NAdamArgs>;

// Dozat, "Incorporating Nesterov momentum into Adam" (ICLR workshop 2016). With g the gradient plus
// weight_decay * p, in step t = 1, 2, ...:
//
//   u(t) = beta1 * (1 - 0.96^(t * momentum_decay) / 2),   U(t) = u(1) * ... * u(t)
//   m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2
//   n = (1 - u(t)) / (1 - U(t)) * g + u(t + 1) / (1 - U(t + 1)) * m
//   p = p - lr * n / (sqrt(v / (1 - beta2^t)) + eps)
//
// With decoupled_weight_decay, g is the gradient alone, and p = p * (1 - lr * weight_decay) is
// applied first.
class NAdam final : public OptimizerWith<NAdam, NAdamOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  template <class TakesOptionsOf = NAdamArgs,
            OptionNames Named =
                "lr, betas, eps, weight_decay, momentum_decay, decoupled_weight_decay, "
                "maximize, master_weights, state_dtype">
  NAdam(detail::AnyParamGroups, ...) = delete;

 private:
  friend OptimizerWith;
  static constexpr const char* kName = "NAdam";
  static constexpr std::array kState = {"exp_avg", "exp_avg_sq", "mu_product"};
  static void check(const NAdamArgs& options);
  void update(const Batch& batch, const NAdamArgs& options) override;
  StateLayout state_layout(size_t i, const Tensor& parameter) const override;
};

}  // namespace mytorch::nn::optim
