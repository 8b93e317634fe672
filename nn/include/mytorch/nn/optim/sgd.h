// Stochastic gradient descent.
#pragma once

#include <concepts>
#include <optional>
#include <utility>

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
class SGDOptions final : public OptimizerOptionsOf<SGDOptions, SGDArgs> {
 public:
  using OptimizerOptionsOf::OptimizerOptionsOf;
};

// With g the gradient plus weight_decay * p:
//
//   b = momentum * b + (1 - dampening) * g       (b = g in the first step)
//   p = p - lr * b                               (nesterov: p - lr * (g + momentum * b))
//
// as in PyTorch (Sutskever et al., "On the importance of initialization and momentum in deep
// learning", ICML 2013, but with lr outside of b).
class SGD final : public OptimizerWith<SGDOptions> {
 public:
  explicit SGD(ParamGroups parameters, SGDArgs options = {});
  template <class TakesOptionsOf = SGDArgs,
            OptionNames Named =
                "lr, momentum, dampening, weight_decay, nesterov, maximize, master_weights, "
                "state_dtype">
  SGD(detail::AnyParamGroups, ...) = delete;
  template <std::convertible_to<SGDOptions> Options>
  SGD(ParamGroups parameters, const Options& options)
      : SGD(std::move(parameters), SGDOptions(options).args()) {}

 private:
  void check(const SGDArgs& options) const override;
  void update(const Batch& batch) override;
};

}  // namespace mytorch::nn::optim
