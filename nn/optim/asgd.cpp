#include "mytorch/nn/optim/asgd.h"

#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/asgd_step.h"
#include "mytorch/ops/copy_.h"
#include "nn/optim/number.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

template void list_fields(OptionVisitor&, ASGDArgs&);

void ASGD::check(const ASGDArgs& options) {
  check_not_negative(
      kName,
      {{"lambd", options.lambd}, {"alpha", options.alpha}, {"weight_decay", options.weight_decay}});
}

Optimizer::StateLayout ASGD::state_layout(size_t i, const Tensor& parameter) const {
  if (i != 0) return {.shape = {}, .number = true};
  return Optimizer::state_layout(i, parameter);
}

void ASGD::update(const Batch& batch, const ASGDArgs& options) {
  const Number lr(batch.lr), step(batch.step);
  const Number next_eta = lr / pow(1 + options.lambd * lr * step, options.alpha);
  const Number next_mu = 1 / max(step - options.t0, 1);
  const std::vector<Tensor> averages = batch.state(0);
  const std::vector<Tensor> etas = batch.state(1, options.lr), mus = batch.state(2, 1);
  for (size_t i = 0; i < averages.size(); ++i) {
    const Tensor& parameter = batch.parameters[i];
    asgd_step_out(parameter, averages[i], parameter, batch.gradients[i], averages[i], etas[i],
                  mus[i], options.lambd, options.weight_decay, options.maximize ? -1 : 1);
    etas[i].copy_(next_eta.tensor(etas[i].device()));
    mus[i].copy_(next_mu.tensor(mus[i].device()));
  }
}

}  // namespace mytorch::nn::optim
