// Adam and AdamW.
#pragma once

#include <array>
#include <optional>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct AdamArgs {
  double lr = 1e-3;
  Betas betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;  // divides by the largest second moment so far (Reddi et al., ICLR 2018)
  bool maximize = false;
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
using AdamOptions = OptimizerOptionsOf<AdamArgs>;

// A separate type because the default of weight_decay differs.
struct AdamWArgs {
  double lr = 1e-3;
  Betas betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
using AdamWOptions = OptimizerOptionsOf<AdamWArgs>;

// Adam, or AdamW, which has its weight decay `decoupled` from the gradient.
template <class Options, bool decoupled>
class AdamOf final : public OptimizerWith<AdamOf<Options, decoupled>, Options> {
  using Base = OptimizerWith<AdamOf, Options>;

 public:
  using Args = typename Options::Args;
  using Base::Base;
  template <class TakesOptionsOf = Args,
            OptionNames Named =
                "lr, betas, eps, weight_decay, amsgrad, maximize, master_weights, state_dtype">
  AdamOf(detail::AnyParamGroups, ...) = delete;

 private:
  friend Base;
  static constexpr const char* kName = decoupled ? "AdamW" : "Adam";
  static constexpr std::array kState = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  static void check(const Args& options);
  void update(const Optimizer::Batch& batch, const Args& options) override;
  bool rounds() const override { return true; }
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
