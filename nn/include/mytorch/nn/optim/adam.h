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

// An aggregate of its own, for its own default.
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
};

// Kingma and Ba, "Adam: a method for stochastic optimization" (ICLR 2015). With g the gradient plus
// weight_decay * p:
//
//   m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2
//   p = p - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
class Adam final : public OptimizerWith<AdamOptions> {
 public:
  explicit Adam(std::vector<Tensor> parameters, AdamOptions options = {});

 private:
  void check(const AdamOptions& options) const override;
  void update(size_t group, Slot& slot, const Tensor& gradient) override;
  Numbers numbers(size_t group) override;
};

// Adam whose weight decay is not part of g: p = p * (1 - lr * weight_decay) first. Loshchilov and
// Hutter, "Decoupled weight decay regularization" (ICLR 2019).
class AdamW final : public OptimizerWith<AdamWOptions> {
 public:
  explicit AdamW(std::vector<Tensor> parameters, AdamWOptions options = {});

 private:
  void check(const AdamWOptions& options) const override;
  void update(size_t group, Slot& slot, const Tensor& gradient) override;
  Numbers numbers(size_t group) override;
};

}  // namespace mytorch::nn::optim
