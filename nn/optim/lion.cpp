#include "mytorch/nn/optim/lion.h"

#include <utility>
#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/lion_step.h"
#include "nn/optim/number.h"

namespace mytorch::nn::optim {

template void list_fields(OptionList&, LionArgs&);

Lion::Lion(ParamGroups parameters, LionArgs options)
    : OptimizerWith("Lion", {"exp_avg"}, std::move(options)) {
  add_param_groups(std::move(parameters));
}

void Lion::check(const LionArgs& options) const {
  check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  const auto [beta1, beta2] = options.betas;
  check_option(beta1 >= 0 && beta1 < 1, "beta1", beta1, "one from 0 up to, but not, 1");
  check_option(beta2 >= 0 && beta2 < 1, "beta2", beta2, "one from 0 up to, but not, 1");
  check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
}

void Lion::update(const Batch& batch) {
  const LionArgs& options = this->args_of(batch.group);
  const auto [beta1, beta2] = options.betas;
  const std::vector<Tensor> means = batch.state(0);
  for (size_t i = 0; i < means.size(); ++i) {
    const Tensor& parameter = batch.parameters[i];
    lion_step_out(parameter, means[i], parameter, batch.gradients[i], means[i], batch.lr, beta1,
                  beta2, options.weight_decay, options.maximize ? -1 : 1);
  }
}

}  // namespace mytorch::nn::optim
