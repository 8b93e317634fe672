#include "mytorch/nn/optim/adam.h"

#include <tuple>
#include <utility>
#include <vector>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/adam_steps_.h"

namespace mytorch::nn::optim {

template void list_fields(OptionList&, AdamArgs&);
template void list_fields(OptionList&, AdamWArgs&);

template <class Options, bool decoupled>
AdamOf<Options, decoupled>::AdamOf(ParamGroups parameters, Args options)
    : OptimizerWith<Options>(decoupled ? "AdamW" : "Adam",
                             {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, options) {
  this->add_param_groups(std::move(parameters));
}

template <class Options, bool decoupled>
void AdamOf<Options, decoupled>::check(const Args& options) const {
  const auto below_one = [&](const char* name, double beta) {
    this->check_option(beta >= 0 && beta < 1, name, beta, "one from 0 up to, but not, 1");
  };
  this->check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  below_one("beta1", std::get<0>(options.betas));
  below_one("beta2", std::get<1>(options.betas));
  this->check_option(options.eps >= 0, "eps", options.eps, "0 or more");
  this->check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
}

template <class Options, bool decoupled>
void AdamOf<Options, decoupled>::update(const Optimizer::Batch& batch) {
  const Args& options = this->args_of(batch.group);
  const auto [beta1, beta2] = options.betas;
  adam_steps_(batch.parameters, batch.gradients, batch.state(0), batch.state(1),
              options.amsgrad ? batch.state(2) : std::vector<Tensor>(), batch.lr, batch.step, beta1,
              beta2, options.eps, options.weight_decay, decoupled, options.maximize, batch.rounded);
}

template class AdamOf<AdamOptions, false>;
template class AdamOf<AdamWOptions, true>;

}  // namespace mytorch::nn::optim
