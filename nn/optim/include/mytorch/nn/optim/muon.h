// Muon.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "mytorch/nn/optim/optimizer.h"

namespace mytorch::nn::optim {

struct MuonArgs {
  double lr = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  Quintic ns_coefficients = {3.4445, -4.775, 2.0315};
  double eps = 1e-7;
  int64_t ns_steps = 5;
  // How the rate depends on the shape: "original" (the default), by sqrt(max(1, rows / columns)),
  // or "match_rms_adamw", by 0.2 * sqrt(max(rows, columns)), for which AdamW's rates fit.
  std::optional<std::string> adjust_lr_fn = {};
  bool master_weights = true;  // of 16-bit parameters; see Optimizer
  std::optional<ScalarType> state_dtype = {};
};
using MuonOptions = OptimizerOptionsOf<MuonArgs>;

// Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024), for parameters
// of two dimensions; others belong in an optimizer of their own, such as AdamW. With g the
// gradient:
//
//   m = momentum * m + (1 - momentum) * g,   u = m   (nesterov: g + momentum * (m - g))
//   p = p * (1 - lr * weight_decay) - adjusted lr * orthogonalize(u)
//
// where orthogonalize replaces the singular values of u / |u| by numbers near 1: `ns_steps` times
// x = a * x + (b * x x^T + c * (x x^T)^2) x, with the coefficients a, b, c; in bfloat16.
class Muon final : public OptimizerWith<Muon, MuonOptions> {
 public:
  using OptimizerWith::OptimizerWith;
  template <class TakesOptionsOf = MuonArgs,
            OptionNames Named =
                "lr, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps, "
                "adjust_lr_fn, master_weights, state_dtype">
  Muon(detail::AnyParamGroups, ...) = delete;

 private:
  friend OptimizerWith;
  static constexpr const char* kName = "Muon";
  static constexpr std::array kState = {"momentum_buffer"};
  static void check(const MuonArgs& options);
  void update(const Batch& batch, const MuonArgs& options) override;
  static const char* refusal_of(const Tensor& parameter);
};

}  // namespace mytorch::nn::optim
