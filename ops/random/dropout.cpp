// Dropout of channels, and for self-normalizing networks.
#include "mytorch/ops/dropout.h"

#include <cmath>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/bernoulli_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/ones.h"
#include "ops/check.h"

namespace mytorch::composite {
namespace {

void check_p(double p, const char* op) {
  check_value(p >= 0 && p <= 1, op, "p is ", p, ": give a probability, from 0 to 1");
}

void check_input(const Tensor& input, const char* op) {
  check_type(is_differentiable(input.dtype()), op, "input is ", input.dtype(),
             ": it must be of a floating or complex type");
}

// Returns the shape of one random number for each channel: (N, C, 1, ...).
Dims channel_sizes(const Tensor& input, const char* op) {
  check_shape(input.dim() >= 2, op, "input ", input.sizes(), " has no channels in dimension 1");
  Dims sizes(static_cast<size_t>(input.dim()), 1);
  sizes[0] = input.size(0);
  sizes[1] = input.size(1);
  return sizes;
}

Tensor alpha_dropout_of(const Tensor& input, double p, const std::optional<Generator>& generator,
                        IntList noise_sizes) {
  constexpr double kAlpha = 1.7580993408473766;  // minus SELU's value of minus infinity
  const double scale = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  const Tensor keep = mytorch::empty(noise_sizes, to_real(input.dtype()), input.device());
  keep.bernoulli_(1 - p, generator);
  return input * (keep * scale) + (keep * (kAlpha * scale) + kAlpha * scale * (p - 1));
}

}  // namespace

Tensor feature_dropout(const Tensor& input, double p, bool train,
                       std::optional<Generator> generator) {
  check_p(p, "feature_dropout");
  if (!train || p == 0) return input;
  if (p == 1) return input * 0;  // NaN for NaN and infinities, as for every dropped element
  check_input(input, "feature_dropout");
  const Dims sizes = channel_sizes(input, "feature_dropout");
  const Tensor channels = mytorch::ones(as_list(sizes), to_real(input.dtype()), input.device());
  return input * mytorch::dropout(channels, p, true, generator);
}

Tensor alpha_dropout(const Tensor& input, double p, bool train,
                     std::optional<Generator> generator) {
  check_p(p, "alpha_dropout");
  if (!train || p == 0) return input;
  if (p == 1) return input * 0;
  check_input(input, "alpha_dropout");
  return alpha_dropout_of(input, p, generator, input.sizes());
}

Tensor feature_alpha_dropout(const Tensor& input, double p, bool train,
                             std::optional<Generator> generator) {
  check_p(p, "feature_alpha_dropout");
  if (!train || p == 0) return input;
  if (p == 1) return input * 0;
  check_input(input, "feature_alpha_dropout");
  const Dims sizes = channel_sizes(input, "feature_alpha_dropout");
  return alpha_dropout_of(input, p, generator, as_list(sizes));
}

}  // namespace mytorch::composite
