#include "mytorch/nn/optim/adadelta.h"

#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/adadelta_step.h"
#include "nn/optim/number.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

template void list_fields(OptionVisitor&, AdadeltaArgs&);

void Adadelta::check(const AdadeltaArgs& options) {
  check_option(kName, options.rho >= 0 && options.rho <= 1, "rho", options.rho, "one from 0 to 1");
  check_not_negative(kName, {{"eps", options.eps}, {"weight_decay", options.weight_decay}});
}

void Adadelta::update(const Batch& batch, const AdadeltaArgs& options) {
  const std::vector<Tensor> squares = batch.state(0), deltas = batch.state(1);
  for (size_t i = 0; i < squares.size(); ++i) {
    const Tensor& parameter = batch.parameters[i];
    adadelta_step_out(parameter, squares[i], deltas[i], parameter, batch.gradients[i], squares[i],
                      deltas[i], batch.lr, options.rho, options.eps, options.weight_decay,
                      options.maximize ? -1 : 1);
  }
}

}  // namespace mytorch::nn::optim
