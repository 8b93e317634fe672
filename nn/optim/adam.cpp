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

constexpr size_t kMean = 0, kSquare = 1, kLargest = 2;

const std::vector<const char*> kStateNames = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

// One step from a gradient that includes what weight decay adds to it. The corrections of the moments
// are numbers, so they are put into the step size and eps:
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

Adam::Adam(std::vector<Tensor> parameters, AdamOptions options)
    : OptimizerWith("Adam", kStateNames) {
  add_group(std::move(parameters), options);
}

AdamW::AdamW(std::vector<Tensor> parameters, AdamWOptions options)
    : OptimizerWith("AdamW", kStateNames) {
  add_group(std::move(parameters), options);
}

// The two have the same options, and check and name them alike.
#define MYTORCH_ADAM_OPTIONS(Class)                                                               \
  void Class::check(const Class##Options& options) const {                                        \
    check_option(options.lr >= 0, "lr", options.lr, "a rate that is not negative");               \
    check_option(options.beta1 >= 0 && options.beta1 < 1, "beta1", options.beta1,                 \
                 "one from 0 up to but without 1");                                               \
    check_option(options.beta2 >= 0 && options.beta2 < 1, "beta2", options.beta2,                 \
                 "one from 0 up to but without 1");                                               \
    check_option(options.eps >= 0, "eps", options.eps, "0 or more");                              \
    check_option(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");   \
  }                                                                                               \
  Optimizer::Numbers Class::numbers(size_t group) {                                               \
    Class##Options& options = options_[group];                                                    \
    return {{"lr", &options.lr},                                                                  \
            {"beta1", &options.beta1},                                                            \
            {"beta2", &options.beta2},                                                            \
            {"eps", &options.eps},                                                                \
            {"weight_decay", &options.weight_decay}};                                             \
  }
MYTORCH_ADAM_OPTIONS(Adam)
MYTORCH_ADAM_OPTIONS(AdamW)
#undef MYTORCH_ADAM_OPTIONS

void Adam::update(size_t group, Slot& slot, const Tensor& given) {
  const AdamOptions& options = options_[group];
  Tensor gradient = options.maximize ? neg(given) : given;
  if (options.weight_decay != 0) gradient = add(gradient, slot.parameter, options.weight_decay);
  adam_step(slot, gradient, options);
}

void AdamW::update(size_t group, Slot& slot, const Tensor& given) {
  const AdamWOptions& options = options_[group];
  if (options.weight_decay != 0) slot.parameter.mul_(1 - options.lr * options.weight_decay);
  adam_step(slot, options.maximize ? neg(given) : given, options);
}

}  // namespace mytorch::nn::optim
