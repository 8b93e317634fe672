// Dropout of channels, and for self-normalizing networks.
#include "mytorch/nn/functional.h"
#include "mytorch/ops/alpha_dropout.h"
#include "mytorch/ops/feature_alpha_dropout.h"
#include "mytorch/ops/feature_dropout.h"
#include "nn/functional/named.h"

namespace mytorch::nn::functional {
namespace {

using MaybeGenerator = std::optional<Generator>;

// Samples of `unbatched_dim` dimensions are a batch of one.
Tensor channel_dropout(const char* op, const Tensor& input, double p, bool training,
                       const MaybeGenerator& generator, int64_t unbatched_dim) {
  return named(op, [&] {
    if (input.dim() != unbatched_dim) {
      return mytorch::feature_dropout(input, p, training, generator);
    }
    return mytorch::feature_dropout(input.unsqueeze(0), p, training, generator).squeeze(0);
  });
}

}  // namespace

Tensor overwritten(const Tensor& input, const Tensor& result) {
  return result.is_same(input) ? input : input.copy_(result);
}

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
  return mytorch::alpha_dropout(input, p, training, generator);
}

Tensor feature_alpha_dropout(const Tensor& input, double p, bool training,
                             MaybeGenerator generator) {
  return mytorch::feature_alpha_dropout(input, p, training, generator);
}

}  // namespace mytorch::nn::functional
