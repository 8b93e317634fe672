#include "mytorch/nn/optim/adam.h"

#include <cmath>
#include <utility>

#include "mytorch/ops/adam_step.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/maximum.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/sqrt.h"
#include "mytorch/ops/zeros_like.h"

namespace mytorch::nn::optim {
namespace {

// The corrections of the moments are numbers, so they are put into the step size and eps:
//   m / c1 / (sqrt(v / c2) + eps) = sqrt(c2) / c1 * m / (sqrt(v) + eps * sqrt(c2))
struct Corrected {
  double lr;
  double eps;
};
template <class Options>
Corrected corrected(const Options& options, int64_t step) {
  const double t = static_cast<double>(step);
  const double root2 = std::sqrt(1 - std::pow(options.beta2, t));
  return {options.lr * root2 / (1 - std::pow(options.beta1, t)), options.eps * root2};
}

// With the largest of all second moments, from a gradient that includes what weight decay adds to
// it.
template <class Slot, class Options>
void amsgrad_step(Slot& slot, const Tensor& gradient, const Options& options) {
  auto& [mean, square, largest] = slot.state;
  if (!largest.defined()) largest = zeros_like(slot.parameter);
  const Corrected by = corrected(options, slot.step);
  mean.lerp_(gradient, 1 - options.beta1);
  square.mul_(options.beta2).addcmul_(gradient, gradient, 1 - options.beta2);
  maximum_out(largest, largest, square);
  slot.parameter.addcdiv_(mean, sqrt(largest).add_(by.eps), -by.lr);
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
  const Tensor& parameter = slot.parameter;
  auto& [mean, square, largest] = slot.state;
  if (!mean.defined()) {
    mean = zeros_like(parameter);
    square = zeros_like(parameter);
  }
  const double decay = options.weight_decay;
  const double shrink = decoupled ? 1 - options.lr * decay : 1;
  if (options.amsgrad) {
    Tensor gradient = options.maximize ? neg(given) : given;
    if (!decoupled && decay != 0) gradient = add(gradient, parameter, decay);
    if (shrink != 1) parameter.mul_(shrink);
    amsgrad_step(slot, gradient, options);
    return;
  }
  const Corrected by = corrected(options, slot.step);
  adam_step_out(parameter, mean, square, parameter, given, mean, square, by.lr, 1 - options.beta1,
                1 - options.beta2, by.eps, shrink, decoupled ? 0 : decay,
                options.maximize ? -1 : 1);
}

template class AdamOf<AdamOptions, false>;
template class AdamOf<AdamWOptions, true>;

}  // namespace mytorch::nn::optim
