#include "mytorch/nn/optim/lion.h"

#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/lion_step.h"
#include "nn/optim/number.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

template void list_fields(OptionVisitor&, LionArgs&);

void Lion::check(const LionArgs& options) {
  check_betas(kName, options.betas);
  check_not_negative(kName, {{"weight_decay", options.weight_decay}});
}

void Lion::update(const Batch& batch, const LionArgs& options) {
  const auto [beta1, beta2] = options.betas;
  const std::vector<Tensor> means = batch.state(0);
  for (size_t i = 0; i < means.size(); ++i) {
    const Tensor& parameter = batch.parameters[i];
    lion_step_out(parameter, means[i], parameter, batch.gradients[i], means[i], batch.lr, beta1,
                  beta2, options.weight_decay, options.maximize ? -1 : 1);
  }
}

}  // namespace mytorch::nn::optim
