#include "mytorch/nn/optim/adam.h"

#include <cmath>
#include <utility>

#include "mytorch/ops/add.h"
#include "mytorch/ops/maximum.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/sqrt.h"
#include "mytorch/ops/zeros_like.h"

namespace mytorch::nn::optim {
namespace {

// One step from a gradient that includes what weight decay adds to it. The corrections of the
// moments are numbers, so they are put into the step size and eps:
//   m / c1 / (sqrt(v / c2) + eps) = sqrt(c2) / c1 * m / (sqrt(v) + eps * sqrt(c2))
template <class Slot, class Options>
void adam_step(Slot& slot, const Tensor& gradient, const Options& options) {
  auto& [mean, square, largest] = slot.state;
  if (!mean.defined()) {
    mean = zeros_like(slot.parameter);
    square = zeros_like(slot.parameter);
    if (options.amsgrad) largest = zeros_like(slot.parameter);
  }
  mean.lerp_(gradient, 1 - options.beta1);
  square.mul_(options.beta2).addcmul_(gradient, gradient, 1 - options.beta2);
  if (options.amsgrad) maximum_out(largest, largest, square);
  const double t = static_cast<double>(slot.step);
  const double root2 = std::sqrt(1 - std::pow(options.beta2, t));
  const Tensor divisor = sqrt(options.amsgrad ? largest : square);
  divisor.add_(options.eps * root2);
  slot.parameter.addcdiv_(mean, divisor, -options.lr * root2 / (1 - std::pow(options.beta1, t)));
}

}  // namespace

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
void AdamOf<Options, decoupled>::update(size_t group, Optimizer::Slot& slot, const Tensor& given) {
  const Options& options = this->options_[group];
  Tensor gradient = options.maximize ? neg(given) : given;
  if (options.weight_decay != 0) {
    if constexpr (decoupled) {
      slot.parameter.mul_(1 - options.lr * options.weight_decay);
    } else {
      gradient = add(gradient, slot.parameter, options.weight_decay);
    }
  }
  adam_step(slot, gradient, options);
}

template class AdamOf<AdamOptions, false>;
template class AdamOf<AdamWOptions, true>;

}  // namespace mytorch::nn::optim
