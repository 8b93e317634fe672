// Adagrad.
#pragma once

#include <array>
#include <optional>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct AdagradArgs {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
using AdagradOptions = OptimizerOptionsOf<AdagradArgs>;

// Duchi et al., "Adaptive subgradient methods for online learning and stochastic optimization"
// (JMLR 2011). With g the gradient plus weight_decay * p, in step t = 1, 2, ...:
//
//   s = s + g^2,   p = p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)
class Adagrad final : public OptimizerWith<Adagrad, AdagradOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  template <class TakesOptionsOf = AdagradArgs,
            OptionNames Named =
                "lr, lr_decay, weight_decay, initial_accumulator_value, eps, maximize, "
                "master_weights, state_dtype">
  Adagrad(detail::AnyParamGroups, ...) = delete;

 private:
  friend OptimizerWith;
  static constexpr const char* kName = "Adagrad";
  static constexpr std::array kState = {"sum"};
  static void check(const AdagradArgs& options);
  void update(const Batch& batch, const AdagradArgs& options) override;
};

}  // namespace mytorch::nn::optim
