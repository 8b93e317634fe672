#include "mytorch/nn/optim/radam.h"

#include <utility>
#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/radam_step.h"
#include "nn/optim/number.h"

namespace mytorch::nn::optim {

template void list_fields(OptionList&, RAdamArgs&);

RAdam::RAdam(ParamGroups parameters, RAdamArgs options)
    : OptimizerWith("RAdam", {"exp_avg", "exp_avg_sq"}, std::move(options)) {
  add_param_groups(std::move(parameters));
}

void RAdam::check(const RAdamArgs& options) const {
  check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  const auto [beta1, beta2] = options.betas;
  check_option(beta1 >= 0 && beta1 < 1, "beta1", beta1, "one from 0 up to, but not, 1");
  check_option(beta2 >= 0 && beta2 < 1, "beta2", beta2, "one from 0 up to, but not, 1");
  check_option(options.eps >= 0, "eps", options.eps, "0 or more");
  check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
}

void RAdam::update(const Batch& batch) {
  const RAdamArgs& options = this->args_of(batch.group);
  const auto [beta1, beta2] = options.betas;
  const Number lr(batch.lr), step(batch.step);
  const Number power = pow(beta2, step), correction = 1 - power;
  const Number by = lr / (1 - pow(beta1, step));
  const double longest = 2 / (1 - beta2) - 1;
  const Number length = longest - 2 * step * power / correction;
  // The root of a negative number, NaN, is not chosen.
  const Number rectification =
      sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length));
  const Number adaptive = if_greater(length, 5, by * rectification * sqrt(correction), 0);
  const Number shrink = options.decoupled_weight_decay ? 1 - lr * options.weight_decay : Number(1);
  const double decay = options.decoupled_weight_decay ? 0 : options.weight_decay;
  const std::vector<Tensor> means = batch.state(0), squares = batch.state(1);
  for (size_t i = 0; i < means.size(); ++i) {
    const Tensor& parameter = batch.parameters[i];
    radam_step_out(parameter, means[i], squares[i], parameter, batch.gradients[i], means[i],
                   squares[i], by.operand(), adaptive.operand(), shrink.operand(), 1 - beta1,
                   1 - beta2, options.eps, decay, options.maximize ? -1 : 1);
  }
}

}  // namespace mytorch::nn::optim
