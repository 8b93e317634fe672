#include "mytorch/nn/optim/adadelta.h"

#include <utility>
#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/adadelta_step.h"
#include "nn/optim/number.h"

namespace mytorch::nn::optim {

template void list_fields(OptionList&, AdadeltaArgs&);

Adadelta::Adadelta(ParamGroups parameters, AdadeltaArgs options)
    : OptimizerWith("Adadelta", {"square_avg", "acc_delta"}, options) {
  add_param_groups(std::move(parameters));
}

void Adadelta::check(const AdadeltaArgs& options) const {
  check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  check_option(options.rho >= 0 && options.rho <= 1, "rho", options.rho, "one from 0 to 1");
  check_option(options.eps >= 0, "eps", options.eps, "0 or more");
  check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
}

void Adadelta::update(const Batch& batch) {
  const AdadeltaArgs& options = this->args_of(batch.group);
  const std::vector<Tensor> squares = batch.state(0), deltas = batch.state(1);
  for (size_t i = 0; i < squares.size(); ++i) {
    const Tensor& parameter = batch.parameters[i];
    adadelta_step_out(parameter, squares[i], deltas[i], parameter, batch.gradients[i], squares[i],
                      deltas[i], batch.lr, options.rho, options.eps, options.weight_decay,
                      options.maximize ? -1 : 1);
  }
}

}  // namespace mytorch::nn::optim
