#include "mytorch/nn/optim/rmsprop.h"

#include <utility>

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/addcmul.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/rmsprop_steps_.h"
#include "mytorch/ops/sqrt.h"

namespace mytorch::nn::optim {

template void list_fields(OptionList&, RMSpropArgs&);

RMSprop::RMSprop(ParamGroups parameters, RMSpropArgs options)
    : OptimizerWith("RMSprop", {"square_avg", "momentum", "grad_avg"}, options) {
  add_param_groups(std::move(parameters));
}

void RMSprop::check(const RMSpropArgs& options) const {
  check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  check_option(options.alpha >= 0, "alpha", options.alpha, "0 or more");
  check_option(options.eps >= 0, "eps", options.eps, "0 or more");
  check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
  check_option(options.momentum >= 0, "momentum", options.momentum, "0 or more");
}

void RMSprop::update(const Batch& batch) {
  const RMSpropArgs& options = this->args_of(batch.group);
  const std::vector<Tensor> squares = batch.state(0);
  if (!options.centered && options.momentum == 0) {
    rmsprop_steps_(batch.parameters, batch.gradients, squares, batch.lr, options.alpha, options.eps,
                   options.weight_decay, options.maximize);
    return;
  }
  const bool momentum = options.momentum > 0;
  const std::vector<Tensor> buffers = momentum ? batch.state(1) : std::vector<Tensor>();
  const std::vector<Tensor> means = options.centered ? batch.state(2) : std::vector<Tensor>();
  for (size_t i = 0; i < squares.size(); ++i) {
    const Tensor& parameter = batch.parameters[i];
    Tensor gradient = options.maximize ? neg(batch.gradients[i]) : batch.gradients[i];
    if (options.weight_decay != 0) gradient = add(gradient, parameter, options.weight_decay);
    squares[i].mul_(options.alpha).addcmul_(gradient, gradient, 1 - options.alpha);
    Tensor divisor;
    if (options.centered) {
      means[i].lerp_(gradient, 1 - options.alpha);
      divisor = addcmul(squares[i], means[i], means[i], -1);
      divisor.sqrt_();
    } else {
      divisor = sqrt(squares[i]);
    }
    divisor.add_(options.eps);
    if (momentum) {
      buffers[i].mul_(options.momentum).addcdiv_(gradient, divisor);
      parameter.sub_(mul(buffers[i], batch.lr));
    } else {
      parameter.sub_(div(gradient, divisor).mul_(batch.lr));
    }
  }
}

}  // namespace mytorch::nn::optim
