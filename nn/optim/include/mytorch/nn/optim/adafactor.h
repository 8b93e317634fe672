// Adafactor.
#pragma once

#include <array>
#include <optional>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct AdafactorArgs {
  double lr = 1e-2;  // the largest rate, relative to the parameter's root mean square
  double beta2_decay = -0.8;
  FactoredEps eps = {std::nullopt, 1e-3};
  double d = 1;  // the largest root mean square of an update
  double weight_decay = 0;
  bool maximize = false;
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
using AdafactorOptions = OptimizerOptionsOf<AdafactorArgs>;

// Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost" (ICML 2018).
// With g the gradient, in step t = 1, 2, ..., and p = p * (1 - lr * weight_decay) applied first:
//
//   b = t^beta2_decay,   a = max(eps2, rms(p)) * min(lr, 1 / sqrt(t))
//   r = r + b * (mean over columns of g^2 - r),   c = c + b * (mean over rows of g^2 - c)
//   u = g / sqrt(max(r * c / max(mean(r), eps1), eps1^2)),   p = p - a * u / max(1, rms(u) / d)
//
// The rows and columns are those of the last two dimensions. Parameters of one dimension keep the
// average of g^2 itself.
class Adafactor final : public OptimizerWith<Adafactor, AdafactorOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  template <class TakesOptionsOf = AdafactorArgs,
            OptionNames Named =
                "lr, beta2_decay, eps, d, weight_decay, maximize, master_weights, state_dtype">
  Adafactor(detail::AnyParamGroups, ...) = delete;

 private:
  friend OptimizerWith;
  static constexpr const char* kName = "Adafactor";
  static constexpr std::array kState = {"row_var", "col_var", "variance"};
  static void check(const AdafactorArgs& options);
  void update(const Batch& batch, const AdafactorArgs& options) override;
  static const char* refusal_of(const Tensor& parameter);
  StateLayout state_layout(size_t i, const Tensor& parameter) const override;
};

}  // namespace mytorch::nn::optim
