#include "mytorch/nn/optim/adam.h"

#include <utility>

#include "mytorch/ops/adam_steps_.h"

namespace mytorch::nn::optim {

template <class Options, bool decoupled>
AdamOf<Options, decoupled>::AdamOf(std::vector<Tensor> parameters, Options options)
    : OptimizerWith<Options>(decoupled ? "AdamW" : "Adam",
                             {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}) {
  this->add_group(std::move(parameters), options);
}

template <class Options, bool decoupled>
void AdamOf<Options, decoupled>::check(const Options& options) const {
  const auto below_one = [&](const char* name, double beta) {
    this->check_option(beta >= 0 && beta < 1, name, beta, "one from 0 up to, but not, 1");
  };
  this->check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  below_one("beta1", options.beta1);
  below_one("beta2", options.beta2);
  this->check_option(options.eps >= 0, "eps", options.eps, "0 or more");
  this->check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
}

template <class Options, bool decoupled>
Optimizer::Numbers AdamOf<Options, decoupled>::numbers(size_t group) {
  Options& options = this->options_[group];
  return {{"lr", &options.lr},
          {"beta1", &options.beta1},
          {"beta2", &options.beta2},
          {"eps", &options.eps},
          {"weight_decay", &options.weight_decay}};
}

template <class Options, bool decoupled>
Optimizer::Flags AdamOf<Options, decoupled>::flags(size_t group) const {
  const Options& options = this->options_[group];
  return {{"amsgrad", options.amsgrad}, {"maximize", options.maximize}};
}

template <class Options, bool decoupled>
void AdamOf<Options, decoupled>::update(const Optimizer::Batch& batch) {
  const Options& options = this->options_[batch.group];
  adam_steps_(batch.parameters, batch.gradients, batch.state(0), batch.state(1),
              options.amsgrad ? batch.state(2) : std::vector<Tensor>(), batch.lr, batch.step,
              options.beta1, options.beta2, options.eps, options.weight_decay, decoupled,
              options.maximize);
}

template class AdamOf<AdamOptions, false>;
template class AdamOf<AdamWOptions, true>;

}  // namespace mytorch::nn::optim
