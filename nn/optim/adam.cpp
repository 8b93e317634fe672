#include "mytorch/nn/optim/adam.h"

#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/adam_steps_.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

template void list_fields(OptionVisitor&, AdamArgs&);
template void list_fields(OptionVisitor&, AdamWArgs&);

template <class Options, bool decoupled>
void AdamOf<Options, decoupled>::check(const Args& options) {
  check_betas(kName, options.betas);
  check_not_negative(kName, {{"eps", options.eps}, {"weight_decay", options.weight_decay}});
}

template <class Options, bool decoupled>
void AdamOf<Options, decoupled>::update(const Optimizer::Batch& batch, const Args& options) {
  const auto [beta1, beta2] = options.betas;
  adam_steps_(batch.parameters, batch.gradients, batch.state(0), batch.state(1),
              options.amsgrad ? batch.state(2) : std::vector<Tensor>(), batch.lr, batch.step, beta1,
              beta2, options.eps, options.weight_decay, decoupled, options.maximize, batch.rounded);
}

template class AdamOf<AdamOptions, false>;
template class AdamOf<AdamWOptions, true>;

}  // namespace mytorch::nn::optim
