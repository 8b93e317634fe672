// Dropout of channels, and for self-normalizing networks.
#include <cmath>
#include <vector>

#include "mytorch/nn/functional.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/bernoulli_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "nn/functional/options.h"

namespace mytorch::nn::functional {
namespace {

using MaybeGenerator = std::optional<Generator>;

// Returns the shape of one random number for each channel: (N, C, 1, ...).
std::vector<int64_t> channel_sizes(const char* op, const Tensor& input) {
  if (input.dim() < 2) {
    fail(ErrorCode::kShape, "[", op, "] input ", shape_str(input.sizes()),
         " has no channels in dimension 1");
  }
  std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[0] = input.size(0);
  sizes[1] = input.size(1);
  return sizes;
}

Tensor channel_dropout(const char* op, const Tensor& input, double p, bool training,
                       const MaybeGenerator& generator, int64_t unbatched_dim) {
  check_probability(op, p);
  if (!training || p == 0) return input;
  if (input.dim() == unbatched_dim) {
    return channel_dropout(op, input.unsqueeze(0), p, training, generator, 0).squeeze(0);
  }
  const Tensor channels = ones(channel_sizes(op, input), input.dtype(), input.device());
  return mul(input, mytorch::dropout(channels, p, true, generator));
}

Tensor alpha_dropout_of(const char* op, const Tensor& input, double p, bool training,
                        const MaybeGenerator& generator, IntList noise_sizes) {
  check_probability(op, p);
  if (!training || p == 0) return input;
  if (p == 1) return mul(input, 0);
  constexpr double kAlpha = 1.7580993408473766;  // minus SELU's value of minus infinity
  const double scale = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  const Tensor keep = empty(noise_sizes, input.dtype(), input.device());
  keep.bernoulli_(1 - p, generator);
  const Tensor shift = add(mul(keep, kAlpha * scale), kAlpha * scale * (p - 1));
  return add(mul(input, mul(keep, scale)), shift);
}

}  // namespace

Tensor dropout1d(const Tensor& input, double p, bool training, MaybeGenerator generator) {
  return channel_dropout("dropout1d", input, p, training, generator, 2);
}

Tensor dropout2d(const Tensor& input, double p, bool training, MaybeGenerator generator) {
  return channel_dropout("dropout2d", input, p, training, generator, 0);
}

Tensor dropout3d(const Tensor& input, double p, bool training, MaybeGenerator generator) {
  return channel_dropout("dropout3d", input, p, training, generator, 4);
}

Tensor alpha_dropout(const Tensor& input, double p, bool training, MaybeGenerator generator) {
  return alpha_dropout_of("alpha_dropout", input, p, training, generator, input.sizes());
}

Tensor feature_alpha_dropout(const Tensor& input, double p, bool training,
                             MaybeGenerator generator) {
  return alpha_dropout_of("feature_alpha_dropout", input, p, training, generator,
                          channel_sizes("feature_alpha_dropout", input));
}

}  // namespace mytorch::nn::functional
