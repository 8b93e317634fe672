// Parameter initialization. Each function fills a tensor in place, without recording, and returns
// it.
//
// Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks"
// (AISTATS 2010); He et al., "Delving deep into rectifiers" (ICCV 2015).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/nn/options.h"
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
Nonlinearity from_name(Str name, Nonlinearity);  // NOLINT: named by its type
// Returns the factor on the standard deviation of the weights that preserves the variance of the
// activations through a nonlinearity.
double gain(OneOf<Nonlinearity> nonlinearity, double negative_slope = 0.01);
// PyTorch's name: calculate_gain("relu").
inline double calculate_gain(OneOf<Nonlinearity> nonlinearity, double negative_slope = 0.01) {
  return gain(nonlinearity, negative_slope);
}

// Sets the standard deviation to gain * sqrt(2 / (fan_in + fan_out)). Throws Error(kShape) for
// fewer than two dimensions, as do the functions below.
const Tensor& xavier_uniform_(const Tensor& tensor, double gain = 1, MaybeGenerator generator = {});
const Tensor& xavier_normal_(const Tensor& tensor, double gain = 1, MaybeGenerator generator = {});

enum class FanMode { kIn, kOut };
FanMode from_name(Str name, FanMode);  // NOLINT: named by its type
struct KaimingArgs {
  double negative_slope = 0;                                    // for kLeakyReLU
  OneOf<FanMode> mode = FanMode::kIn;                           // or "fan_in", "fan_out"
  OneOf<Nonlinearity> nonlinearity = Nonlinearity::kLeakyReLU;  // or "relu", "tanh", ...
};
// Sets the standard deviation to gain / sqrt(fan).
const Tensor& kaiming_uniform_(const Tensor& tensor, KaimingArgs options = {},
                               MaybeGenerator generator = {});
const Tensor& kaiming_normal_(const Tensor& tensor, KaimingArgs options = {},
                              MaybeGenerator generator = {});
// The same with libtorch's arguments: kaiming_uniform_(w, std::sqrt(5), kFanOut, kReLU).
inline const Tensor& kaiming_uniform_(const Tensor& tensor, double negative_slope,
                                      OneOf<FanMode> mode = FanMode::kIn,
                                      OneOf<Nonlinearity> nonlinearity = Nonlinearity::kLeakyReLU) {
  return kaiming_uniform_(tensor, KaimingArgs{negative_slope, mode, nonlinearity});
}
inline const Tensor& kaiming_normal_(const Tensor& tensor, double negative_slope,
                                     OneOf<FanMode> mode = FanMode::kIn,
                                     OneOf<Nonlinearity> nonlinearity = Nonlinearity::kLeakyReLU) {
  return kaiming_normal_(tensor, KaimingArgs{negative_slope, mode, nonlinearity});
}

// Draws from the normal distribution, limited to [a, b]. Throws Error(kValue) unless a <= b and std
// > 0.
const Tensor& trunc_normal_(const Tensor& tensor, double mean = 0, double std = 1, double a = -2,
                            double b = 2, MaybeGenerator generator = {});
// Makes the rows of the matrix (out, in * window...), or its columns if these are fewer,
// orthogonal vectors of length `gain` (Saxe et al., "Exact solutions to the nonlinear dynamics of
// learning in deep linear neural networks", ICLR 2014).
const Tensor& orthogonal_(const Tensor& tensor, double gain = 1, MaybeGenerator generator = {});
// Sets a matrix to the identity.
const Tensor& eye_(const Tensor& tensor);
// Makes a convolution of 3 to 5 dimensions, with an odd window, copy as many input channels as it
// has output channels, in each of `groups` groups.
const Tensor& dirac_(const Tensor& tensor, int64_t groups = 1);
// Draws a matrix from the normal distribution, and zeros the fraction `sparsity` of each column
// (Martens, "Deep learning via Hessian-free optimization", ICML 2010).
const Tensor& sparse_(const Tensor& tensor, double sparsity, double std = 0.01,
                      MaybeGenerator generator = {});

// Initialization of language models, as of GPT-2 (Radford et al., "Language models are unsupervised
// multitask learners", 2019).
struct TransformerInitArgs {
  double std = 0.02;
  // The ends of the names of weights that end a residual branch, such as "out_proj.weight" and
  // "linear2.weight". Their standard deviation is std / sqrt(2 * num_layers), so that the sum of
  // all branches does not grow with the number of layers.
  std::vector<std::string> residual = {};
  int64_t num_layers = 0;
  MaybeGenerator generator = {};
};
// Draws the weights of each Linear, Embedding and MultiheadAttention of a model from the normal
// distribution, zeros their biases and the padding rows of embeddings, and changes nothing else.
// Throws Error(kValue) if a text of `residual` ends the name of no such weight.
void transformer_(Module& model, const TransformerInitArgs& options = {});

}  // namespace mytorch::nn::init
