// RMSprop.
#pragma once

#include <array>
#include <optional>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct RMSpropArgs {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
using RMSpropOptions = OptimizerOptionsOf<RMSpropArgs>;

// Hinton's lectures (Coursera, 2012), and Graves, "Generating sequences with recurrent neural
// networks" (2013), for `centered`. With g the gradient plus weight_decay * p:
//
//   v = alpha * v + (1 - alpha) * g^2,   a = alpha * a + (1 - alpha) * g   (a = 0 unless centered)
//   b = momentum * b + g / (sqrt(v - a^2) + eps),   p = p - lr * b
class RMSprop final : public OptimizerWith<RMSprop, RMSpropOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  template <class TakesOptionsOf = RMSpropArgs,
            OptionNames Named =
                "lr, alpha, eps, weight_decay, momentum, centered, maximize, master_weights, "
                "state_dtype">
  RMSprop(detail::AnyParamGroups, ...) = delete;

 private:
  friend OptimizerWith;
  static constexpr const char* kName = "RMSprop";
  static constexpr std::array kState = {"square_avg", "momentum", "grad_avg"};
  static void check(const RMSpropArgs& options);
  void update(const Batch& batch, const RMSpropArgs& options) override;
};

}  // namespace mytorch::nn::optim
