// Averaged stochastic gradient descent.
#pragma once

#include <concepts>
#include <optional>
#include <utility>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct ASGDArgs {
  double lr = 1e-2;
  double lambd = 1e-4;  // decay
  double alpha = 0.75;  // power of the rate's decay
  double t0 = 1e6;      // step at which averaging starts
  double weight_decay = 0;
  bool maximize = false;
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
class ASGDOptions final : public OptimizerOptionsOf<ASGDOptions, ASGDArgs> {
 public:
  using OptimizerOptionsOf::OptimizerOptionsOf;
};

// Polyak and Juditsky, "Acceleration of stochastic approximation by averaging" (1992). With g the
// gradient plus weight_decay * p, in step t = 1, 2, ...:
//
//   p = p * (1 - lambd * eta) - eta * g,   ax = ax + mu * (p - ax)
//   eta = lr / (1 + lambd * lr * t)^alpha,   mu = 1 / max(1, t - t0)      (for the next step)
//
// where eta = lr and mu = 1 in the first step. The average is the state "ax".
class ASGD final : public OptimizerWith<ASGDOptions> {
 public:
  explicit ASGD(ParamGroups parameters, ASGDArgs options = {});
  template <class TakesOptionsOf = ASGDArgs,
            OptionNames Named =
                "lr, lambd, alpha, t0, weight_decay, maximize, master_weights, state_dtype">
  ASGD(detail::AnyParamGroups, ...) = delete;
  template <std::convertible_to<ASGDOptions> Options>
  ASGD(ParamGroups parameters, const Options& options)
      : ASGD(std::move(parameters), ASGDOptions(options).args()) {}

 private:
  void check(const ASGDArgs& options) const override;
  void update(const Batch& batch) override;
  StateLayout state_layout(size_t i, const Tensor& parameter) const override;
};

}  // namespace mytorch::nn::optim
