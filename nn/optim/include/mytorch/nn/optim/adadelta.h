// Adadelta.
#pragma once

#include <array>
#include <optional>

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
using AdadeltaOptions = OptimizerOptionsOf<AdadeltaArgs>;

// Zeiler, "ADADELTA: an adaptive learning rate method" (2012). With g the gradient plus
// weight_decay * p:
//
//   v = rho * v + (1 - rho) * g^2,   d = sqrt(a + eps) / sqrt(v + eps) * g
//   a = rho * a + (1 - rho) * d^2,   p = p - lr * d
class Adadelta final : public OptimizerWith<Adadelta, AdadeltaOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  template <class TakesOptionsOf = AdadeltaArgs,
            OptionNames Named = "lr, rho, eps, weight_decay, maximize, master_weights, state_dtype">
  Adadelta(detail::AnyParamGroups, ...) = delete;

 private:
  friend OptimizerWith;
  static constexpr const char* kName = "Adadelta";
  static constexpr std::array kState = {"square_avg", "acc_delta"};
  static void check(const AdadeltaArgs& options);
  void update(const Batch& batch, const AdadeltaArgs& options) override;
};

}  // namespace mytorch::nn::optim
