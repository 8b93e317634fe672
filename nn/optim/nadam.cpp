#include "mytorch/nn/optim/nadam.h"

#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/nadam_step.h"
#include "nn/optim/number.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

template void list_fields(OptionVisitor&, NAdamArgs&);

void NAdam::check(const NAdamArgs& options) {
  check_betas(kName, options.betas);
  check_not_negative(kName, {{"eps", options.eps},
                             {"weight_decay", options.weight_decay},
                             {"momentum_decay", options.momentum_decay}});
}

Optimizer::StateLayout NAdam::state_layout(size_t i, const Tensor& parameter) const {
  if (i == 2) return {.shape = {}, .number = true};
  return Optimizer::state_layout(i, parameter);
}

void NAdam::update(const Batch& batch, const NAdamArgs& options) {
  const auto [beta1, beta2] = options.betas;
  const Number lr(batch.lr), step(batch.step);
  const Number correction = 1 - pow(beta2, step);
  const auto momentum = [&, beta1 = beta1](const Number& t) {
    return beta1 * (1 - 0.5 * pow(0.96, t * options.momentum_decay));
  };
  const Number mu = momentum(step), next_mu = momentum(step + 1);
  const Number shrink = options.decoupled_weight_decay ? 1 - lr * options.weight_decay : Number(1);
  const double decay = options.decoupled_weight_decay ? 0 : options.weight_decay;
  const std::vector<Tensor> means = batch.state(0), squares = batch.state(1);
  const std::vector<Tensor> products = batch.state(2, 1);
  for (size_t i = 0; i < means.size(); ++i) {
    const Tensor& parameter = batch.parameters[i];
    products[i].mul_(mu.operand());
    const Number product(products[i]);
    const Number grad_rate = lr * (1 - mu) / (1 - product);
    const Number mean_rate = lr * next_mu / (1 - product * next_mu);
    nadam_step_out(parameter, means[i], squares[i], parameter, batch.gradients[i], means[i],
                   squares[i], grad_rate.operand(), mean_rate.operand(), correction.operand(),
                   shrink.operand(), 1 - beta1, 1 - beta2, options.eps, decay,
                   options.maximize ? -1 : 1);
  }
}

}  // namespace mytorch::nn::optim
