// Adafactor.
#pragma once

#include <concepts>
#include <optional>
#include <utility>

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
class AdafactorOptions final : public OptimizerOptionsOf<AdafactorOptions, AdafactorArgs> {
 public:
  using OptimizerOptionsOf::OptimizerOptionsOf;
};

// Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost" (ICML 2018).
// With g the gradient, in step t = 1, 2, ..., and p = p * (1 - lr * weight_decay) applied first:
//
//   b = t^beta2_decay,   a = max(eps2, rms(p)) * min(lr, 1 / sqrt(t))
//   r = r + b * (mean over columns of g^2 - r),   c = c + b * (mean over rows of g^2 - c)
//   u = g / sqrt(max(r * c / max(mean(r), eps1), eps1^2)),   p = p - a * u / max(1, rms(u) / d)
//
// The rows and columns are those of the last two dimensions. Parameters of one dimension keep the
// average of g^2 itself.
class Adafactor final : public OptimizerWith<AdafactorOptions> {
 public:
  explicit Adafactor(ParamGroups parameters, AdafactorArgs options = {});
  template <class TakesOptionsOf = AdafactorArgs,
            OptionNames Named =
                "lr, beta2_decay, eps, d, weight_decay, maximize, master_weights, state_dtype">
  Adafactor(detail::AnyParamGroups, ...) = delete;
  template <std::convertible_to<AdafactorOptions> Options>
  Adafactor(ParamGroups parameters, const Options& options)
      : Adafactor(std::move(parameters), AdafactorOptions(options).args()) {}

 private:
  void check(const AdafactorArgs& options) const override;
  void update(const Batch& batch) override;
  const char* refusal(const Tensor& parameter) const override;
  StateLayout state_layout(size_t i, const Tensor& parameter) const override;
};

}  // namespace mytorch::nn::optim
