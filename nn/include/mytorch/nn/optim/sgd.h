// Stochastic gradient descent.
#pragma once

#include <vector>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  // requires momentum, and no dampening
  bool maximize = false;
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
  explicit SGD(std::vector<Tensor> parameters, SGDOptions options = {});

 private:
  void check(const SGDOptions& options) const override;
  void update(const Batch& batch) override;
  Numbers numbers(size_t group) override;
  Flags flags(size_t group) const override;
};

}  // namespace mytorch::nn::optim
