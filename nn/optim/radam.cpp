#include "mytorch/nn/optim/radam.h"

#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/radam_step.h"
#include "nn/optim/number.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

template void list_fields(OptionVisitor&, RAdamArgs&);

void RAdam::check(const RAdamArgs& options) {
  check_betas(kName, options.betas);
  check_not_negative(kName, {{"eps", options.eps}, {"weight_decay", options.weight_decay}});
}

void RAdam::update(const Batch& batch, const RAdamArgs& options) {
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
