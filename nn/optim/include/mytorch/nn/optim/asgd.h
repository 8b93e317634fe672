// Averaged stochastic gradient descent.
#pragma once

#include <array>
#include <optional>

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
using ASGDOptions = OptimizerOptionsOf<ASGDArgs>;

// Polyak and Juditsky, "Acceleration of stochastic approximation by averaging" (1992). With g the
// gradient plus weight_decay * p, in step t = 1, 2, ...:
//
//   p = p * (1 - lambd * eta) - eta * g,   ax = ax + mu * (p - ax)
//   eta = lr / (1 + lambd * lr * t)^alpha,   mu = 1 / max(1, t - t0)      (for the next step)
//
// where eta = lr and mu = 1 in the first step. The average is the state "ax".
class ASGD final : public OptimizerWith<ASGD, ASGDOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  template <class TakesOptionsOf = ASGDArgs,
            OptionNames Named =
                "lr, lambd, alpha, t0, weight_decay, maximize, master_weights, state_dtype">
  ASGD(detail::AnyParamGroups, ...) = delete;

 private:
  friend OptimizerWith;
  static constexpr const char* kName = "ASGD";
  static constexpr std::array kState = {"ax", "eta", "mu"};
  static void check(const ASGDArgs& options);
  void update(const Batch& batch, const ASGDArgs& options) override;
  StateLayout state_layout(size_t i, const Tensor& parameter) const override;
};

}  // namespace mytorch::nn::optim
