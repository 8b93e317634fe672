#include "mytorch/nn/optim/rmsprop.h"

#include "mytorch/nn/optim/list_fields.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/addcmul.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/rmsprop_steps_.h"
#include "mytorch/ops/sqrt.h"
#include "nn/optim/option_checks.h"

namespace mytorch::nn::optim {

template void list_fields(OptionVisitor&, RMSpropArgs&);

void RMSprop::check(const RMSpropArgs& options) {
  check_not_negative(kName, {{"alpha", options.alpha},
                             {"eps", options.eps},
                             {"weight_decay", options.weight_decay},
                             {"momentum", options.momentum}});
}

void RMSprop::update(const Batch& batch, const RMSpropArgs& options) {
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
