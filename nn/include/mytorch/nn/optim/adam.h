// Adam and AdamW.
#pragma once

#include <vector>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;  // divides by the largest second moment so far (Reddi et al., ICLR 2018)
  bool maximize = false;
};

// A separate type because the default of weight_decay differs.
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
};

// Adam, or AdamW, which has its weight decay `decoupled` from the gradient.
template <class Options, bool decoupled>
class AdamOf final : public OptimizerWith<Options> {
 public:
  explicit AdamOf(std::vector<Tensor> parameters, Options options = {});

 private:
  void check(const Options& options) const override;
  void update(const Optimizer::Batch& batch) override;
  Optimizer::Numbers numbers(size_t group) override;
  Optimizer::Flags flags(size_t group) const override;
};
extern template class AdamOf<AdamOptions, false>;
extern template class AdamOf<AdamWOptions, true>;

// Kingma and Ba, "Adam: a method for stochastic optimization" (ICLR 2015). With g the gradient plus
// weight_decay * p, in step t = 1, 2, ...:
//
//   m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2
//   p = p - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
using Adam = AdamOf<AdamOptions, false>;

// The same, but with g the gradient alone, and p = p * (1 - lr * weight_decay) applied first.
// Loshchilov and Hutter, "Decoupled weight decay regularization" (ICLR 2019).
using AdamW = AdamOf<AdamWOptions, true>;

}  // namespace mytorch::nn::optim
