#include "mytorch/nn/optim/adafactor.h"

#include <cmath>
#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/clamp_min.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/lerp.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/rsqrt.h"
#include "mytorch/ops/square.h"
#include "nn/optim/number.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {
namespace {

Tensor root_mean_square(const Tensor& x) {
  return div(linalg_vector_norm(x), std::sqrt(static_cast<double>(x.numel())));
}

// Returns the distance of 1 to the next larger number.
double epsilon_of(ScalarType dtype) {
  const int bits = dtype == kFloat64 ? 52 : dtype == kFloat32 ? 23 : dtype == kFloat16 ? 10 : 7;
  return std::ldexp(1.0, -bits);
}

}  // namespace

template void list_fields(OptionVisitor&, AdafactorArgs&);

void Adafactor::check(const AdafactorArgs& options) {
  const auto [eps1, eps2] = options.eps;
  check_not_negative(kName, {{"eps1", eps1.value_or(0)}, {"eps2", eps2}});
  check_option(kName, options.beta2_decay <= 0, "beta2_decay", options.beta2_decay, "0 or less");
  check_option(kName, options.d >= 1, "d", options.d, "1 or more");
  check_not_negative(kName, {{"weight_decay", options.weight_decay}});
}

const char* Adafactor::refusal_of(const Tensor& parameter) {
  return parameter.is_complex() ? "is complex: give it to another optimizer, such as AdamW"
                                : nullptr;
}

Optimizer::StateLayout Adafactor::state_layout(size_t i, const Tensor& parameter) const {
  StateLayout layout = Optimizer::state_layout(i, parameter);
  const size_t dims = layout.shape.size();
  if (i < 2 && dims > 1) layout.shape[dims - 1 - i] = 1;
  return layout;
}

void Adafactor::update(const Batch& batch, const AdafactorArgs& options) {
  const auto [eps1, eps2] = options.eps;
  const Number lr(batch.lr), step(batch.step);
  const Number weight = pow(step, options.beta2_decay), rate = min(lr, 1 / sqrt(step));
  const Number shrink = 1 - lr * options.weight_decay;
  for (size_t i = 0; i < batch.parameters.size(); ++i) {
    const Tensor &parameter = batch.parameters[i], &gradient = batch.gradients[i];
    if (parameter.numel() == 0) continue;
    const double epsilon = eps1.value_or(epsilon_of(parameter.dtype()));
    const Tensor size = mul(clamp_min(root_mean_square(parameter), eps2), rate.operand());
    if (options.weight_decay != 0) parameter.mul_(shrink.operand());
    Tensor update;
    if (parameter.dim() > 1) {
      const Tensor row = batch.state_of(i, 0), column = batch.state_of(i, 1);
      row.lerp_(mean(square(gradient), {-1}, true), weight.operand());
      column.lerp_(mean(square(gradient), {-2}, true), weight.operand());
      update = mul(row, column).div_(clamp_min(mean(row, {-2}, true), epsilon));
    } else {
      const Tensor variance = batch.state_of(i, 2);
      variance.lerp_(square(gradient), weight.operand());
      update = clone(variance);
    }
    update.clamp_min_(epsilon * epsilon).rsqrt_().mul_(gradient);
    const Tensor excess = clamp_min(div(root_mean_square(update), options.d), 1);
    update.mul_(div(size, excess));
    parameter.add_(update, options.maximize ? 1 : -1);
  }
}

}  // namespace mytorch::nn::optim
