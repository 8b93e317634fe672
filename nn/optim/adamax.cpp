#include "mytorch/nn/optim/adamax.h"

#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/adamax_step.h"
#include "nn/optim/number.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

template void list_fields(OptionVisitor&, AdamaxArgs&);

void Adamax::check(const AdamaxArgs& options) {
  check_betas(kName, options.betas);
  check_not_negative(kName, {{"eps", options.eps}, {"weight_decay", options.weight_decay}});
}

void Adamax::update(const Batch& batch, const AdamaxArgs& options) {
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
