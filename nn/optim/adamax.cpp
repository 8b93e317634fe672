#include "mytorch/nn/optim/adamax.h"

#include <utility>
#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/adamax_step.h"
#include "nn/optim/number.h"

namespace mytorch::nn::optim {

template void list_fields(OptionList&, AdamaxArgs&);

Adamax::Adamax(ParamGroups parameters, AdamaxArgs options)
    : OptimizerWith("Adamax", {"exp_avg", "exp_inf"}, std::move(options)) {
  add_param_groups(std::move(parameters));
}

void Adamax::check(const AdamaxArgs& options) const {
  check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  const auto [beta1, beta2] = options.betas;
  check_option(beta1 >= 0 && beta1 < 1, "beta1", beta1, "one from 0 up to, but not, 1");
  check_option(beta2 >= 0 && beta2 < 1, "beta2", beta2, "one from 0 up to, but not, 1");
  check_option(options.eps >= 0, "eps", options.eps, "0 or more");
  check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
}

void Adamax::update(const Batch& batch) {
  const AdamaxArgs& options = this->args_of(batch.group);
  const auto [beta1, beta2] = options.betas;
  const Number lr = Number(batch.lr) / (1 - pow(beta1, Number(batch.step)));
  const std::vector<Tensor> means = batch.state(0), bounds = batch.state(1);
  for (size_t i = 0; i < means.size(); ++i) {
    const Tensor& parameter = batch.parameters[i];
    adamax_step_out(parameter, means[i], bounds[i], parameter, batch.gradients[i], means[i],
                    bounds[i], lr.operand(), 1 - beta1, beta2, options.eps, options.weight_decay,
                    options.maximize ? -1 : 1);
  }
}

}  // namespace mytorch::nn::optim
