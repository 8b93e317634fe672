// Adadelta.
#pragma once

#include <concepts>
#include <optional>
#include <utility>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct AdadeltaArgs {
  double lr = 1;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
class AdadeltaOptions final : public OptimizerOptionsOf<AdadeltaOptions, AdadeltaArgs> {
 public:
  using OptimizerOptionsOf::OptimizerOptionsOf;
};

// Zeiler, "ADADELTA: an adaptive learning rate method" (2012). With g the gradient plus
// weight_decay * p:
//
//   v = rho * v + (1 - rho) * g^2,   d = sqrt(a + eps) / sqrt(v + eps) * g
//   a = rho * a + (1 - rho) * d^2,   p = p - lr * d
class Adadelta final : public OptimizerWith<AdadeltaOptions> {
 public:
  explicit Adadelta(ParamGroups parameters, AdadeltaArgs options = {});
  template <class TakesOptionsOf = AdadeltaArgs,
            OptionNames Named = "lr, rho, eps, weight_decay, maximize, master_weights, state_dtype">
  Adadelta(detail::AnyParamGroups, ...) = delete;
  template <std::convertible_to<AdadeltaOptions> Options>
  Adadelta(ParamGroups parameters, const Options& options)
      : Adadelta(std::move(parameters), AdadeltaOptions(options).args()) {}

 private:
  void check(const AdadeltaArgs& options) const override;
  void update(const Batch& batch) override;
};

}  // namespace mytorch::nn::optim
