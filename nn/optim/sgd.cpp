#include "mytorch/nn/optim/sgd.h"

#include <utility>

#include "core/types/errors.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/sgd_step.h"
#include "mytorch/ops/zeros_like.h"

namespace mytorch::nn::optim {
namespace {

// p * (1 - lr * weight_decay) - lr * g, which is p - lr * (g + weight_decay * p), in place.
void descend(const Tensor& parameter, const Tensor& gradient, double lr, double weight_decay) {
  if (weight_decay != 0) parameter.mul_(1 - lr * weight_decay);
  parameter.add_(gradient, -lr);
}

}  // namespace

SGD::SGD(std::vector<Tensor> parameters, SGDOptions options) : OptimizerWith("SGD", {"momentum"}) {
  add_group(std::move(parameters), options);
}

void SGD::check(const SGDOptions& options) const {
  check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");
  check_option(options.momentum >= 0, "momentum", options.momentum, "0 or more");
  check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    fail(ErrorCode::kValue, "[SGD] nesterov needs a momentum and no dampening, not momentum ",
         options.momentum, " and dampening ", options.dampening);
  }
}

Optimizer::Numbers SGD::numbers(size_t group) {
  SGDOptions& options = options_[group];
  return {{"lr", &options.lr},
          {"momentum", &options.momentum},
          {"dampening", &options.dampening},
          {"weight_decay", &options.weight_decay}};
}

void SGD::update(size_t group, Slot& slot, const Tensor& given) {
  const SGDOptions& options = options_[group];
  const Tensor& parameter = slot.parameter;
  const double decay = options.weight_decay;
  if (options.momentum == 0) {
    return descend(parameter, options.maximize ? neg(given) : given, options.lr, decay);
  }
  Tensor& buffer = slot.state[0];
  const bool first = !buffer.defined();  // the buffer then becomes the gradient
  if (first) buffer = zeros_like(parameter);
  sgd_step_out(parameter, buffer, parameter, given, buffer, options.lr, options.momentum,
               first ? 1 : 1 - options.dampening, decay, options.maximize ? -1 : 1,
               options.nesterov);
}

}  // namespace mytorch::nn::optim
