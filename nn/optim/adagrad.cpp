#include "mytorch/nn/optim/adagrad.h"

#include <utility>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/adagrad_steps_.h"

namespace mytorch::nn::optim {

template void list_fields(OptionList&, AdagradArgs&);

Adagrad::Adagrad(ParamGroups parameters, AdagradArgs options)
    : OptimizerWith("Adagrad", {"sum"}, options) {
  add_param_groups(std::move(parameters));
}

void Adagrad::check(const AdagradArgs& options) const {
  check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  check_option(options.lr_decay >= 0, "lr_decay", options.lr_decay, "0 or more");
  check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
  check_option(options.initial_accumulator_value >= 0, "initial_accumulator_value",
               options.initial_accumulator_value, "0 or more");
  check_option(options.eps >= 0, "eps", options.eps, "0 or more");
}

void Adagrad::update(const Batch& batch) {
  const AdagradArgs& options = this->args_of(batch.group);
  adagrad_steps_(batch.parameters, batch.gradients,
                 batch.state(0, options.initial_accumulator_value), batch.lr, batch.step,
                 options.eps, options.lr_decay, options.weight_decay, options.maximize);
}

}  // namespace mytorch::nn::optim
