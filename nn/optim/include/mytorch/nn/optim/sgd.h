// Stochastic gradient descent.
#pragma once

#include <array>
#include <optional>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct SGDArgs {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  // requires momentum, and no dampening
  bool maximize = false;
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
using SGDOptions = OptimizerOptionsOf<SGDArgs>;

// With g the gradient plus weight_decay * p:
//
//   b = momentum * b + (1 - dampening) * g       (b = g in the first step)
//   p = p - lr * b                               (nesterov: p - lr * (g + momentum * b))
//
// as in PyTorch (Sutskever et al., "On the importance of initialization and momentum in deep
// learning", ICML 2013, but with lr outside of b).
class SGD final : public OptimizerWith<SGD, SGDOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  template <class TakesOptionsOf = SGDArgs,
            OptionNames Named =
                "lr, momentum, dampening, weight_decay, nesterov, maximize, master_weights, "
                "state_dtype">
  SGD(detail::AnyParamGroups, ...) = delete;

 private:
  friend OptimizerWith;
  static constexpr const char* kName = "SGD";
  static constexpr std::array kState = {"momentum"};
  static void check(const SGDArgs& options);
  void update(const Batch& batch, const SGDArgs& options) override;
};

}  // namespace mytorch::nn::optim
