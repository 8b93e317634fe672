#include "mytorch/nn/optim/nadam.h"

#include <utility>
#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/nadam_step.h"
#include "nn/optim/number.h"

namespace mytorch::nn::optim {

template void list_fields(OptionList&, NAdamArgs&);

NAdam::NAdam(ParamGroups parameters, NAdamArgs options)
    : OptimizerWith("NAdam", {"exp_avg", "exp_avg_sq", "mu_product"}, std::move(options)) {
  add_param_groups(std::move(parameters));
}

void NAdam::check(const NAdamArgs& options) const {
  check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  const auto [beta1, beta2] = options.betas;
  check_option(beta1 >= 0 && beta1 < 1, "beta1", beta1, "one from 0 up to, but not, 1");
  check_option(beta2 >= 0 && beta2 < 1, "beta2", beta2, "one from 0 up to, but not, 1");
  check_option(options.eps >= 0, "eps", options.eps, "0 or more");
  check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
  check_option(options.momentum_decay >= 0, "momentum_decay", options.momentum_decay, "0 or more");
}

Optimizer::StateLayout NAdam::state_layout(size_t i, const Tensor& parameter) const {
  if (i == 2) return {.shape = {}, .number = true};
  return Optimizer::state_layout(i, parameter);
}

void NAdam::update(const Batch& batch) {
  const NAdamArgs& options = this->args_of(batch.group);
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
