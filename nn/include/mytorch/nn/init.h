// Parameter initialization. Each function fills a tensor in place, without recording, and returns
// it.
//
// Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks"
// (AISTATS 2010); He et al., "Delving deep into rectifiers" (ICCV 2015).
#pragma once

#include <cstdint>
#include <optional>

#include "mytorch/generator.h"
#include "mytorch/scalar.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::init {

using MaybeGenerator = std::optional<Generator>;

const Tensor& zeros_(const Tensor& tensor);
const Tensor& ones_(const Tensor& tensor);
const Tensor& constant_(const Tensor& tensor, const Scalar& value);
const Tensor& uniform_(const Tensor& tensor, double from = 0, double to = 1,
                       MaybeGenerator generator = {});
const Tensor& normal_(const Tensor& tensor, double mean = 0, double std = 1,
                      MaybeGenerator generator = {});

// The number of inputs per output and of outputs per input, for a weight of shape (out, in,
// window...). Throws Error(kShape) for fewer than two dimensions.
struct Fans {
  int64_t in;
  int64_t out;
};
Fans fans(const Tensor& tensor);

enum class Nonlinearity { kLinear, kSigmoid, kTanh, kReLU, kLeakyReLU, kSELU };
// Returns the factor on the standard deviation of the weights that preserves the variance of the
// activations through a nonlinearity.
double gain(Nonlinearity nonlinearity, double negative_slope = 0.01);

// Sets the standard deviation to gain * sqrt(2 / (fan_in + fan_out)). Throws Error(kShape) for
// fewer than two dimensions, as do the functions below.
const Tensor& xavier_uniform_(const Tensor& tensor, double gain = 1, MaybeGenerator generator = {});
const Tensor& xavier_normal_(const Tensor& tensor, double gain = 1, MaybeGenerator generator = {});

enum class FanMode { kIn, kOut };
struct KaimingOptions {
  double negative_slope = 0;  // for kLeakyReLU
  FanMode mode = FanMode::kIn;
  Nonlinearity nonlinearity = Nonlinearity::kLeakyReLU;
};
// Sets the standard deviation to gain / sqrt(fan).
const Tensor& kaiming_uniform_(const Tensor& tensor, KaimingOptions options = {},
                               MaybeGenerator generator = {});
const Tensor& kaiming_normal_(const Tensor& tensor, KaimingOptions options = {},
                              MaybeGenerator generator = {});

}  // namespace mytorch::nn::init
