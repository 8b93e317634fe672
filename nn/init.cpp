#include "mytorch/nn/init.h"

#include <cmath>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/normal_.h"
#include "mytorch/ops/uniform_.h"

namespace mytorch::nn::init {

const Tensor& zeros_(const Tensor& tensor) { return constant_(tensor, 0); }
const Tensor& ones_(const Tensor& tensor) { return constant_(tensor, 1); }

const Tensor& constant_(const Tensor& tensor, const Scalar& value) {
  NoGradGuard no_grad;
  return mytorch::fill_(tensor, value);
}

const Tensor& uniform_(const Tensor& tensor, double from, double to, MaybeGenerator generator) {
  NoGradGuard no_grad;
  return mytorch::uniform_(tensor, from, to, std::move(generator));
}

const Tensor& normal_(const Tensor& tensor, double mean, double std, MaybeGenerator generator) {
  NoGradGuard no_grad;
  return mytorch::normal_(tensor, mean, std, std::move(generator));
}

Fans fans(const Tensor& tensor) {
  if (tensor.dim() < 2) {
    fail(ErrorCode::kShape, "[init] a tensor of shape ", shape_str(tensor.sizes()),
         " has no fans: a weight has the dimensions (out, in, window ...)");
  }
  int64_t window = 1;
  for (int64_t i = 2; i < tensor.dim(); ++i) window *= tensor.size(i);
  return {tensor.size(1) * window, tensor.size(0) * window};
}

double gain(Nonlinearity nonlinearity, double negative_slope) {
  switch (nonlinearity) {
    case Nonlinearity::kTanh:
      return 5.0 / 3;
    case Nonlinearity::kReLU:
      return std::sqrt(2.0);
    case Nonlinearity::kLeakyReLU:
      return std::sqrt(2 / (1 + negative_slope * negative_slope));
    case Nonlinearity::kSELU:
      return 0.75;  // PyTorch's value, found experimentally
    case Nonlinearity::kLinear:
    case Nonlinearity::kSigmoid:
      break;
  }
  return 1;
}

namespace {

double xavier_deviation(const Tensor& tensor, double gain) {
  const Fans fan = fans(tensor);
  return gain * std::sqrt(2.0 / static_cast<double>(fan.in + fan.out));
}

double kaiming_deviation(const Tensor& tensor, const KaimingOptions& options) {
  const Fans fan = fans(tensor);
  const int64_t count = options.mode == FanMode::kIn ? fan.in : fan.out;
  return gain(options.nonlinearity, options.negative_slope) / std::sqrt(static_cast<double>(count));
}

// Draws nothing for a tensor without elements, whose standard deviation may be infinite.
const Tensor& symmetric_uniform(const Tensor& tensor, double deviation, MaybeGenerator generator) {
  if (tensor.numel() == 0) return tensor;
  const double bound = std::sqrt(3.0) * deviation;
  return init::uniform_(tensor, -bound, bound, std::move(generator));
}

const Tensor& centered_normal(const Tensor& tensor, double deviation, MaybeGenerator generator) {
  if (tensor.numel() == 0) return tensor;
  return init::normal_(tensor, 0, deviation, std::move(generator));
}

}  // namespace

const Tensor& xavier_uniform_(const Tensor& tensor, double gain, MaybeGenerator generator) {
  return symmetric_uniform(tensor, xavier_deviation(tensor, gain), std::move(generator));
}

const Tensor& xavier_normal_(const Tensor& tensor, double gain, MaybeGenerator generator) {
  return centered_normal(tensor, xavier_deviation(tensor, gain), std::move(generator));
}

const Tensor& kaiming_uniform_(const Tensor& tensor, KaimingOptions options,
                               MaybeGenerator generator) {
  return symmetric_uniform(tensor, kaiming_deviation(tensor, options), std::move(generator));
}

const Tensor& kaiming_normal_(const Tensor& tensor, KaimingOptions options,
                              MaybeGenerator generator) {
  return centered_normal(tensor, kaiming_deviation(tensor, options), std::move(generator));
}

}  // namespace mytorch::nn::init
