// Adamax.
#pragma once

#include <concepts>
#include <optional>
#include <utility>

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
class AdamaxOptions final : public OptimizerOptionsOf<AdamaxOptions, AdamaxArgs> {
 public:
  using OptimizerOptionsOf::OptimizerOptionsOf;
};

// Kingma and Ba, "Adam: a method for stochastic optimization" (ICLR 2015), section 7.1. With g the
// gradient plus weight_decay * p, in step t = 1, 2, ...:
//
//   m = beta1 * m + (1 - beta1) * g,   s = max(beta2 * s, |g| + eps)
//   p = p - lr / (1 - beta1^t) * m / s
class Adamax final : public OptimizerWith<AdamaxOptions> {
 public:
  explicit Adamax(ParamGroups parameters, AdamaxArgs options = {});
  template <
      class TakesOptionsOf = AdamaxArgs,
      OptionNames Named = "lr, betas, eps, weight_decay, maximize, master_weights, state_dtype">
  Adamax(detail::AnyParamGroups, ...) = delete;
  template <std::convertible_to<AdamaxOptions> Options>
  Adamax(ParamGroups parameters, const Options& options)
      : Adamax(std::move(parameters), AdamaxOptions(options).args()) {}

 private:
  void check(const AdamaxArgs& options) const override;
  void update(const Batch& batch) override;
};

}  // namespace mytorch::nn::optim
