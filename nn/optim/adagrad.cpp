#include "mytorch/nn/optim/adagrad.h"

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/adagrad_steps_.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

template void list_fields(OptionVisitor&, AdagradArgs&);

void Adagrad::check(const AdagradArgs& options) {
  check_not_negative(kName, {{"lr_decay", options.lr_decay},
                             {"weight_decay", options.weight_decay},
                             {"initial_accumulator_value", options.initial_accumulator_value},
                             {"eps", options.eps}});
}

void Adagrad::update(const Batch& batch, const AdagradArgs& options) {
  adagrad_steps_(batch.parameters, batch.gradients,
                 batch.state(0, options.initial_accumulator_value), batch.lr, batch.step,
                 options.eps, options.lr_decay, options.weight_decay, options.maximize);
}

}  // namespace mytorch::nn::optim
