#include "mytorch/nn/optim/adagrad.h"

#include <utility>

#include "mytorch/ops/adagrad_steps_.h"

namespace mytorch::nn::optim {

Adagrad::Adagrad(std::vector<Tensor> parameters, AdagradOptions options)
    : OptimizerWith("Adagrad", {"sum"}) {
  add_group(std::move(parameters), options);
}

void Adagrad::check(const AdagradOptions& options) const {
  check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  check_option(options.lr_decay >= 0, "lr_decay", options.lr_decay, "0 or more");
  check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
  check_option(options.initial_accumulator >= 0, "initial_accumulator", options.initial_accumulator,
               "0 or more");
  check_option(options.eps >= 0, "eps", options.eps, "0 or more");
}

Optimizer::Numbers Adagrad::numbers(size_t group) {
  AdagradOptions& options = options_[group];
  return {{"lr", &options.lr},
          {"lr_decay", &options.lr_decay},
          {"weight_decay", &options.weight_decay},
          {"initial_accumulator", &options.initial_accumulator},
          {"eps", &options.eps}};
}

Optimizer::Flags Adagrad::flags(size_t group) const {
  return {{"maximize", options_[group].maximize}};
}

void Adagrad::update(const Batch& batch) {
  const AdagradOptions& options = options_[batch.group];
  adagrad_steps_(batch.parameters, batch.gradients, batch.state(0, options.initial_accumulator),
                 batch.lr, batch.step, options.eps, options.lr_decay, options.weight_decay,
                 options.maximize);
}

}  // namespace mytorch::nn::optim
