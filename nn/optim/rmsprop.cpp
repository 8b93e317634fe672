#include "mytorch/nn/optim/rmsprop.h"

#include <utility>

#include "mytorch/ops/add.h"
#include "mytorch/ops/addcmul.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/rmsprop_step.h"
#include "mytorch/ops/sqrt.h"
#include "mytorch/ops/zeros_like.h"

namespace mytorch::nn::optim {

RMSprop::RMSprop(std::vector<Tensor> parameters, RMSpropOptions options)
    : OptimizerWith("RMSprop", {"square_avg", "momentum", "grad_avg"}) {
  add_group(std::move(parameters), options);
}

void RMSprop::check(const RMSpropOptions& options) const {
  check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  check_option(options.alpha >= 0, "alpha", options.alpha, "0 or more");
  check_option(options.eps >= 0, "eps", options.eps, "0 or more");
  check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
  check_option(options.momentum >= 0, "momentum", options.momentum, "0 or more");
}

Optimizer::Numbers RMSprop::numbers(size_t group) {
  RMSpropOptions& options = options_[group];
  return {{"lr", &options.lr},
          {"alpha", &options.alpha},
          {"eps", &options.eps},
          {"weight_decay", &options.weight_decay},
          {"momentum", &options.momentum}};
}

void RMSprop::update(size_t group, Slot& slot, const Tensor& given) {
  const RMSpropOptions& options = options_[group];
  if (!options.centered && options.momentum == 0) {
    Tensor& average = slot.state[0];
    if (!average.defined()) average = zeros_like(slot.parameter);
    rmsprop_step_out(slot.parameter, average, slot.parameter, given, average, options.lr,
                     1 - options.alpha, options.eps, options.weight_decay,
                     options.maximize ? -1 : 1);
    return;
  }
  Tensor gradient = options.maximize ? neg(given) : given;
  if (options.weight_decay != 0) gradient = add(gradient, slot.parameter, options.weight_decay);

  auto& [square, buffer, mean] = slot.state;
  if (!square.defined()) square = zeros_like(slot.parameter);
  if (options.momentum > 0 && !buffer.defined()) buffer = zeros_like(slot.parameter);
  if (options.centered && !mean.defined()) mean = zeros_like(slot.parameter);

  square.mul_(options.alpha).addcmul_(gradient, gradient, 1 - options.alpha);
  Tensor divisor;
  if (options.centered) {
    mean.lerp_(gradient, 1 - options.alpha);
    divisor = addcmul(square, mean, mean, -1);
    divisor.sqrt_();
  } else {
    divisor = sqrt(square);
  }
  divisor.add_(options.eps);
  if (options.momentum > 0) {
    buffer.mul_(options.momentum).addcdiv_(gradient, divisor);
    slot.parameter.add_(buffer, -options.lr);
  } else {
    slot.parameter.addcdiv_(gradient, divisor, -options.lr);
  }
}

}  // namespace mytorch::nn::optim
