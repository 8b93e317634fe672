// Functions behind the modules, in one namespace: `namespace F = mytorch::nn::functional`.
//
// An operator of mytorch takes its arguments in order, or its optional ones by name:
//
//   F::cross_entropy(logits, labels, {}, "mean", -100, 0.05);
//   F::cross_entropy(logits, labels, {.label_smoothing = 0.05});
//   F::conv2d(x, weight, {.bias = bias, .padding = "same"});
//   F::max_pool2d(x, 3, {.stride = 2, .padding = 1});
//
// All other functions are compositions of operators, and take options by name alone. So do
// batch_norm, instance_norm and embedding, whose first arguments are in PyTorch's order, not
// ATen's. Every function with options also takes libtorch's: F::elu(x,
// F::ELUFuncOptions().alpha(0.4)).
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/nn/activation.h"
#include "mytorch/nn/attention.h"
#include "mytorch/nn/conv.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/loss.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/padding.h"
#include "mytorch/nn/pooling.h"
#include "mytorch/nn/upsampling.h"
#include "mytorch/ops/adaptive_avg_pool1d.h"
#include "mytorch/ops/adaptive_avg_pool2d.h"
#include "mytorch/ops/add_layer_norm.h"
#include "mytorch/ops/add_rms_norm.h"
#include "mytorch/ops/avg_pool1d.h"
#include "mytorch/ops/avg_pool2d.h"
#include "mytorch/ops/batch_norm.h"
#include "mytorch/ops/binary_cross_entropy.h"
#include "mytorch/ops/binary_cross_entropy_with_logits.h"
#include "mytorch/ops/celu.h"
#include "mytorch/ops/conv1d.h"
#include "mytorch/ops/conv2d.h"
#include "mytorch/ops/conv3d.h"
#include "mytorch/ops/conv_transpose1d.h"
#include "mytorch/ops/conv_transpose2d.h"
#include "mytorch/ops/conv_transpose3d.h"
#include "mytorch/ops/cross_entropy.h"
#include "mytorch/ops/dropout.h"
#include "mytorch/ops/elu.h"
#include "mytorch/ops/embedding.h"
#include "mytorch/ops/geglu.h"
#include "mytorch/ops/gelu.h"
#include "mytorch/ops/group_norm.h"
#include "mytorch/ops/hardshrink.h"
#include "mytorch/ops/hardsigmoid.h"
#include "mytorch/ops/hardswish.h"
#include "mytorch/ops/hardtanh.h"
#include "mytorch/ops/huber_loss.h"
#include "mytorch/ops/instance_norm.h"
#include "mytorch/ops/kl_div.h"
#include "mytorch/ops/l1_loss.h"
#include "mytorch/ops/layer_norm.h"
#include "mytorch/ops/leaky_relu.h"
#include "mytorch/ops/linear.h"
#include "mytorch/ops/linear_cross_entropy.h"
#include "mytorch/ops/linear_gelu.h"
#include "mytorch/ops/log_sigmoid.h"
#include "mytorch/ops/log_softmax.h"
#include "mytorch/ops/max_pool1d.h"
#include "mytorch/ops/max_pool2d.h"
#include "mytorch/ops/mish.h"
#include "mytorch/ops/mse_loss.h"
#include "mytorch/ops/nll_loss.h"
#include "mytorch/ops/one_hot.h"
#include "mytorch/ops/pad.h"
#include "mytorch/ops/pdist.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/relu6.h"
#include "mytorch/ops/rms_norm.h"
#include "mytorch/ops/rotary_embedding.h"
#include "mytorch/ops/selu.h"
#include "mytorch/ops/sigmoid.h"
#include "mytorch/ops/silu.h"
#include "mytorch/ops/smooth_l1_loss.h"
#include "mytorch/ops/softcap.h"
#include "mytorch/ops/softmax.h"
#include "mytorch/ops/softplus.h"
#include "mytorch/ops/softshrink.h"
#include "mytorch/ops/softsign.h"
#include "mytorch/ops/swiglu.h"
#include "mytorch/ops/tanh.h"
#include "mytorch/ops/tanhshrink.h"
#include "mytorch/ops/threshold.h"
#include "mytorch/ops/upsample_nearest2d.h"

namespace mytorch::nn::functional {

using mytorch::adaptive_avg_pool1d;
using mytorch::adaptive_avg_pool2d;
using mytorch::add_layer_norm;
using mytorch::add_rms_norm;
using mytorch::avg_pool1d;
using mytorch::avg_pool2d;
using mytorch::binary_cross_entropy;
using mytorch::binary_cross_entropy_with_logits;
using mytorch::celu;
using mytorch::conv1d;
using mytorch::conv2d;
using mytorch::conv3d;
using mytorch::conv_transpose1d;
using mytorch::conv_transpose2d;
using mytorch::conv_transpose3d;
using mytorch::cross_entropy;
using mytorch::dropout;
using mytorch::elu;
using mytorch::geglu;
using mytorch::gelu;
using mytorch::group_norm;
using mytorch::hardshrink;
using mytorch::hardsigmoid;
using mytorch::hardswish;
using mytorch::hardtanh;
using mytorch::huber_loss;
using mytorch::kl_div;
using mytorch::l1_loss;
using mytorch::layer_norm;
using mytorch::leaky_relu;
using mytorch::linear;
using mytorch::linear_cross_entropy;
using mytorch::linear_gelu;
using mytorch::log_sigmoid;
using mytorch::log_softmax;
using mytorch::max_pool1d;
using mytorch::max_pool2d;
using mytorch::mish;
using mytorch::mse_loss;
using mytorch::nll_loss;
using mytorch::one_hot;
using mytorch::pad;
using mytorch::pdist;
using mytorch::relu;
using mytorch::relu6;
using mytorch::rms_norm;
using mytorch::rotary_embedding;
using mytorch::scaled_dot_product_attention;
using mytorch::selu;
using mytorch::sigmoid;
using mytorch::silu;
using mytorch::smooth_l1_loss;
using mytorch::softcap;
using mytorch::softmax;
using mytorch::softplus;
using mytorch::softshrink;
using mytorch::softsign;
using mytorch::swiglu;
using mytorch::tanh;
using mytorch::tanhshrink;
using mytorch::threshold;
using mytorch::upsample_nearest2d;

// ---- activations ----

template <std::same_as<GELUArgs> O = GELUArgs>
Tensor gelu(const Tensor& input, const O& options) {
  return mytorch::gelu(input, name_of(options.approximate));
}

template <std::same_as<InplaceArgs> O = InplaceArgs>
Tensor relu(const Tensor& input, const O& options) {
  return options.inplace ? input.relu_() : mytorch::relu(input);
}

template <std::same_as<InplaceArgs> O = InplaceArgs>
Tensor relu6(const Tensor& input, const O& options) {
  return options.inplace ? input.relu6_() : mytorch::relu6(input);
}

template <std::same_as<InplaceArgs> O = InplaceArgs>
Tensor selu(const Tensor& input, const O& options) {
  return options.inplace ? input.selu_() : mytorch::selu(input);
}

template <std::same_as<LeakyReLUArgs> O = LeakyReLUArgs>
Tensor leaky_relu(const Tensor& input, const O& options) {
  return options.inplace ? input.leaky_relu_(options.negative_slope)
                         : mytorch::leaky_relu(input, options.negative_slope);
}

template <std::same_as<ELUArgs> O = ELUArgs>
Tensor elu(const Tensor& input, const O& options) {
  return options.inplace ? input.elu_(options.alpha) : mytorch::elu(input, options.alpha);
}

template <std::same_as<CELUArgs> O = CELUArgs>
Tensor celu(const Tensor& input, const O& options) {
  return options.inplace ? input.celu_(options.alpha) : mytorch::celu(input, options.alpha);
}

template <std::same_as<SoftplusArgs> O = SoftplusArgs>
Tensor softplus(const Tensor& input, const O& options) {
  return mytorch::softplus(input, options.beta, options.threshold);
}

template <std::same_as<HardtanhArgs> O = HardtanhArgs>
Tensor hardtanh(const Tensor& input, const O& options) {
  return options.inplace ? input.hardtanh_(options.min_val, options.max_val)
                         : mytorch::hardtanh(input, options.min_val, options.max_val);
}

template <std::same_as<HardshrinkArgs> O = HardshrinkArgs>
Tensor hardshrink(const Tensor& input, const O& options) {
  return mytorch::hardshrink(input, options.lambd);
}

template <std::same_as<SoftshrinkArgs> O = SoftshrinkArgs>
Tensor softshrink(const Tensor& input, const O& options) {
  return mytorch::softshrink(input, options.lambd);
}

template <std::same_as<ThresholdArgs> O = ThresholdArgs>
Tensor threshold(const Tensor& input, const O& options) {
  return options.inplace ? input.threshold_(options.threshold, options.value)
                         : mytorch::threshold(input, options.threshold, options.value);
}

struct SoftmaxFuncArgs {
  int64_t dim = -1;
  std::optional<ScalarType> dtype = {};
};
template <std::same_as<SoftmaxFuncArgs> O = SoftmaxFuncArgs>
Tensor softmax(const Tensor& input, const O& options) {
  return mytorch::softmax(input, options.dim, options.dtype);
}

template <std::same_as<SoftmaxFuncArgs> O = SoftmaxFuncArgs>
Tensor log_softmax(const Tensor& input, const O& options) {
  return mytorch::log_softmax(input, options.dim, options.dtype);
}

// log(1 / (1 + exp(-x))); PyTorch's name of log_sigmoid.
inline Tensor logsigmoid(const Tensor& input) { return mytorch::log_sigmoid(input); }
// The first half of dimension `dim`, times the sigmoid of the second half.
Tensor glu(const Tensor& input, int64_t dim = -1);
inline Tensor glu(const Tensor& input, const GLUArgs& options) {
  return functional::glu(input, options.dim);
}
// softmax(-input, dim).
Tensor softmin(const Tensor& input, int64_t dim, std::optional<ScalarType> dtype = {});
inline Tensor softmin(const Tensor& input, const SoftmaxArgs& options) {
  return functional::softmin(input, options.dim);
}
// max(x, 0) + weight * min(x, 0), with one weight, or one for each channel (dimension 1).
Tensor prelu(const Tensor& input, const Tensor& weight);

struct RReLUFuncArgs {
  double lower = 1.0 / 8;
  double upper = 1.0 / 3;
  bool training = false;
  std::optional<Generator> generator = {};
  bool inplace = false;
};
// leaky_relu with a slope for each element, in training uniform in [lower, upper), else their mean.
Tensor rrelu(const Tensor& input, const RReLUFuncArgs& options = {});

struct GumbelSoftmaxArgs {
  double tau = 1;
  bool hard = false;  // whether to return one-hot vectors, with the gradient of the soft ones
  int64_t dim = -1;
  std::optional<Generator> generator = {};
};
// Samples from the Gumbel-softmax distribution (Jang et al., ICLR 2017).
Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxArgs& options = {});

// ---- linear maps, distances, embeddings ----

// x1 @ weight[k] @ x2 + bias[k] for each output k.
Tensor bilinear(const Tensor& input1, const Tensor& input2, const Tensor& weight,
                const Tensor& bias = {});

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2,
                         const PairwiseDistanceArgs& options = {});
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2,
                         const CosineSimilarityArgs& options = {});
struct NormalizeArgs {
  double p = 2;
  int64_t dim = 1;
  double eps = 1e-12;
};
// Divides by the norm along a dimension, or by `eps` if the norm is smaller.
Tensor normalize(const Tensor& input, const NormalizeArgs& options = {});

// Looks up rows of `weight` by index. PyTorch's order; that of mytorch::embedding is ATen's, with
// the table first. With `max_norm`, writes `weight`.
Tensor embedding(const Tensor& input, const Tensor& weight, const EmbeddingArgs& options = {});

struct EmbeddingBagFuncArgs {
  Tensor offsets = {};
  Tensor per_sample_weights = {};
  OneOf<EmbeddingBagMode> mode = EmbeddingBagMode::kMean;
  std::optional<int64_t> padding_idx = {};
  bool scale_grad_by_freq = false;
  bool include_last_offset = false;
  std::optional<double> max_norm = {};
  double norm_type = 2;
};
// See EmbeddingBag. With `max_norm`, writes `weight`.
Tensor embedding_bag(const Tensor& indices, const Tensor& weight,
                     const EmbeddingBagFuncArgs& options = {});

// ---- convolutions ----

template <size_t n>
struct ConvFuncArgs {
  Tensor bias = {};
  Sizes<n> stride = 1;
  ConvPadding<n> padding = 0;  // or "same" or "valid"
  Sizes<n> dilation = 1;
  int64_t groups = 1;
};
template <size_t n>
struct ConvTransposeFuncArgs {
  Tensor bias = {};
  Sizes<n> stride = 1;
  Sizes<n> padding = 0;
  Sizes<n> output_padding = 0;
  int64_t groups = 1;
  Sizes<n> dilation = 1;
};
// Call conv1d, conv2d or conv3d, or their transposes.
template <size_t n>
Tensor conv(const Tensor& input, const Tensor& weight, const ConvFuncArgs<n>& options);
template <size_t n>
Tensor conv_transpose(const Tensor& input, const Tensor& weight,
                      const ConvTransposeFuncArgs<n>& options);
template <std::same_as<ConvFuncArgs<1>> O = ConvFuncArgs<1>>
Tensor conv1d(const Tensor& input, const Tensor& weight, const O& options) {
  return functional::conv(input, weight, options);
}
template <std::same_as<ConvTransposeFuncArgs<1>> O = ConvTransposeFuncArgs<1>>
Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const O& options) {
  return functional::conv_transpose(input, weight, options);
}
template <std::same_as<ConvFuncArgs<2>> O = ConvFuncArgs<2>>
Tensor conv2d(const Tensor& input, const Tensor& weight, const O& options) {
  return functional::conv(input, weight, options);
}
template <std::same_as<ConvTransposeFuncArgs<2>> O = ConvTransposeFuncArgs<2>>
Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const O& options) {
  return functional::conv_transpose(input, weight, options);
}
template <std::same_as<ConvFuncArgs<3>> O = ConvFuncArgs<3>>
Tensor conv3d(const Tensor& input, const Tensor& weight, const O& options) {
  return functional::conv(input, weight, options);
}
template <std::same_as<ConvTransposeFuncArgs<3>> O = ConvTransposeFuncArgs<3>>
Tensor conv_transpose3d(const Tensor& input, const Tensor& weight, const O& options) {
  return functional::conv_transpose(input, weight, options);
}

// ---- pooling ----

// Call the pooling of n spatial dimensions.
template <size_t n>
Tensor max_pool(const Tensor& input, const Sizes<n>& kernel_size, const MaxPoolArgs<n>& options);
template <size_t n>
Tensor avg_pool(const Tensor& input, const Sizes<n>& kernel_size, const AvgPoolArgs<n>& options);
template <std::same_as<MaxPoolArgs<1>> O = MaxPoolArgs<1>>
Tensor max_pool1d(const Tensor& input, Sizes<1> kernel_size, const O& options) {
  return functional::max_pool(input, kernel_size, options);
}
template <std::same_as<AvgPoolArgs<1>> O = AvgPoolArgs<1>>
Tensor avg_pool1d(const Tensor& input, Sizes<1> kernel_size, const O& options) {
  return functional::avg_pool(input, kernel_size, options);
}
template <std::same_as<MaxPoolArgs<2>> O = MaxPoolArgs<2>>
Tensor max_pool2d(const Tensor& input, Sizes<2> kernel_size, const O& options) {
  return functional::max_pool(input, kernel_size, options);
}
template <std::same_as<AvgPoolArgs<2>> O = AvgPoolArgs<2>>
Tensor avg_pool2d(const Tensor& input, Sizes<2> kernel_size, const O& options) {
  return functional::avg_pool(input, kernel_size, options);
}
inline Tensor max_pool3d(const Tensor& input, Sizes<3> kernel_size,
                         const MaxPoolArgs<3>& options = {}) {
  return functional::max_pool(input, kernel_size, options);
}
inline Tensor avg_pool3d(const Tensor& input, Sizes<3> kernel_size,
                         const AvgPoolArgs<3>& options = {}) {
  return functional::avg_pool(input, kernel_size, options);
}
Tensor lp_pool1d(const Tensor& input, double norm_type, Sizes<1> kernel_size,
                 const LPPoolArgs<1>& options = {});
Tensor adaptive_max_pool1d(const Tensor& input, Sizes<1> output_size);
Tensor lp_pool2d(const Tensor& input, double norm_type, Sizes<2> kernel_size,
                 const LPPoolArgs<2>& options = {});
Tensor adaptive_max_pool2d(const Tensor& input, Sizes<2> output_size);
Tensor lp_pool3d(const Tensor& input, double norm_type, Sizes<3> kernel_size,
                 const LPPoolArgs<3>& options = {});
Tensor adaptive_max_pool3d(const Tensor& input, Sizes<3> output_size);
Tensor adaptive_avg_pool3d(const Tensor& input, Sizes<3> output_size);
// Return the result and the indices of its elements in the flattened last dimensions.
std::tuple<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& input,
                                                            Sizes<1> output_size);
std::tuple<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& input,
                                                            Sizes<2> output_size);
std::tuple<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& input,
                                                            Sizes<3> output_size);

// ---- padding, resizing and rearranging ----

struct PadArgs {
  OneOf<PadMode> mode = PadMode::kConstant;  // or "reflect", "replicate", "circular"
  double value = 0;                          // for kConstant
};
template <std::same_as<PadArgs> O = PadArgs>
Tensor pad(const Tensor& input, IntList pad, const O& options) {
  return mytorch::pad(input, pad, name_of(options.mode), options.value);
}

// Resizes the spatial dimensions of (N, C, ...). See UpsampleArgs.
Tensor interpolate(const Tensor& input, const UpsampleArgs& options);

// Returns the elements of an input (N, C, H, W) at the points (x, y) of a grid (N, OH, OW, 2), as
// (N, C, OH, OW), or of (N, C, D, H, W) at the points (x, y, z) of (N, OD, OH, OW, 3). The input
// spans [-1, 1] in each dimension.
Tensor grid_sample(const Tensor& input, const Tensor& grid, const GridSampleArgs& options = {});
// Returns the grid that samples a tensor of shape `size`, (N, C, H, W) or (N, C, D, H, W), at the
// affine images of its points under `theta`, (N, 2, 3) or (N, 3, 4).
Tensor affine_grid(const Tensor& theta, IntList size, bool align_corners = false);

Tensor pixel_shuffle(const Tensor& input, int64_t upscale_factor);
Tensor pixel_unshuffle(const Tensor& input, int64_t downscale_factor);
Tensor channel_shuffle(const Tensor& input, int64_t groups);
Tensor unfold(const Tensor& input, Sizes<2> kernel_size, const UnfoldArgs& options = {});
Tensor fold(const Tensor& input, Sizes<2> output_size, Sizes<2> kernel_size,
            const FoldArgs& options = {});

// ---- normalization ----

struct BatchNormFuncArgs {
  Tensor weight = {};
  Tensor bias = {};
  bool training = false;
  double momentum = 0.1;
  double eps = 1e-5;
};
inline Tensor batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                         const BatchNormFuncArgs& options = {}) {
  return mytorch::batch_norm(input, options.weight, options.bias, running_mean, running_var,
                             options.training, options.momentum, options.eps);
}

struct InstanceNormFuncArgs {
  Tensor running_mean = {};
  Tensor running_var = {};
  Tensor weight = {};
  Tensor bias = {};
  bool use_input_stats = true;
  double momentum = 0.1;
  double eps = 1e-5;
};
inline Tensor instance_norm(const Tensor& input, const InstanceNormFuncArgs& options = {}) {
  return mytorch::instance_norm(input, options.weight, options.bias, options.running_mean,
                                options.running_var, options.use_input_stats, options.momentum,
                                options.eps);
}

struct LayerNormFuncArgs {
  Tensor weight = {};
  Tensor bias = {};
  double eps = 1e-5;
};
using GroupNormFuncArgs = LayerNormFuncArgs;
struct RMSNormFuncArgs {
  Tensor weight = {};
  std::optional<double> eps = {};
};
template <std::same_as<LayerNormFuncArgs> O = LayerNormFuncArgs>
Tensor layer_norm(const Tensor& input, IntList normalized_shape, const O& options) {
  return mytorch::layer_norm(input, normalized_shape, options.weight, options.bias, options.eps);
}
template <std::same_as<GroupNormFuncArgs> O = GroupNormFuncArgs>
Tensor group_norm(const Tensor& input, int64_t num_groups, const O& options) {
  return mytorch::group_norm(input, num_groups, options.weight, options.bias, options.eps);
}
template <std::same_as<RMSNormFuncArgs> O = RMSNormFuncArgs>
Tensor rms_norm(const Tensor& input, IntList normalized_shape, const O& options) {
  return mytorch::rms_norm(input, normalized_shape, options.weight, options.eps);
}
Tensor local_response_norm(const Tensor& input, int64_t size,
                           const LocalResponseNormArgs& options = {});

// ---- dropout ----

struct DropoutFuncArgs {
  double p = 0.5;
  bool training = true;
  std::optional<Generator> generator = {};
  bool inplace = false;
};
// Returns the input, overwritten with the result of a dropout.
Tensor overwritten(const Tensor& input, const Tensor& result);
template <std::same_as<DropoutFuncArgs> O = DropoutFuncArgs>
Tensor dropout(const Tensor& input, const O& options) {
  const Tensor result = mytorch::dropout(input, options.p, options.training, options.generator);
  return options.inplace ? overwritten(input, result) : result;
}
inline Tensor dropout(const Tensor& input, double p = 0.5) {
  return dropout(input, DropoutFuncArgs{.p = p});
}
// See the modules of the same names.
Tensor dropout1d(const Tensor& input, double p = 0.5, bool training = true,
                 std::optional<Generator> generator = {});
Tensor dropout2d(const Tensor& input, double p = 0.5, bool training = true,
                 std::optional<Generator> generator = {});
Tensor dropout3d(const Tensor& input, double p = 0.5, bool training = true,
                 std::optional<Generator> generator = {});
Tensor alpha_dropout(const Tensor& input, double p = 0.5, bool training = true,
                     std::optional<Generator> generator = {});
Tensor feature_alpha_dropout(const Tensor& input, double p = 0.5, bool training = true,
                             std::optional<Generator> generator = {});
#define MYTORCH_DROPOUT(function)                                                    \
  template <std::same_as<DropoutFuncArgs> O = DropoutFuncArgs>                       \
  Tensor function(const Tensor& input, const O& options) {                           \
    const Tensor result =                                                            \
        functional::function(input, options.p, options.training, options.generator); \
    return options.inplace ? overwritten(input, result) : result;                    \
  }
MYTORCH_DROPOUT(dropout1d)
MYTORCH_DROPOUT(dropout2d)
MYTORCH_DROPOUT(dropout3d)
MYTORCH_DROPOUT(alpha_dropout)
MYTORCH_DROPOUT(feature_alpha_dropout)
#undef MYTORCH_DROPOUT

// ---- losses. Those of mytorch also take their arguments in order, with texts ----

template <std::same_as<MSEArgs> O = MSEArgs>
Tensor mse_loss(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::mse_loss(input, target, name_of(options.reduction));
}
template <std::same_as<L1Args> O = L1Args>
Tensor l1_loss(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::l1_loss(input, target, name_of(options.reduction));
}
template <std::same_as<SmoothL1Args> O = SmoothL1Args>
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::smooth_l1_loss(input, target, name_of(options.reduction), options.beta);
}
template <std::same_as<HuberArgs> O = HuberArgs>
Tensor huber_loss(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::huber_loss(input, target, name_of(options.reduction), options.delta);
}
template <std::same_as<CrossEntropyArgs> O = CrossEntropyArgs>
Tensor cross_entropy(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::cross_entropy(input, target, options.weight, name_of(options.reduction),
                                options.ignore_index, options.label_smoothing);
}
template <std::same_as<NLLArgs> O = NLLArgs>
Tensor nll_loss(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::nll_loss(input, target, options.weight, name_of(options.reduction),
                           options.ignore_index);
}
template <std::same_as<BCEArgs> O = BCEArgs>
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::binary_cross_entropy(input, target, options.weight, name_of(options.reduction));
}
template <std::same_as<BCEWithLogitsArgs> O = BCEWithLogitsArgs>
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const O& options) {
  return mytorch::binary_cross_entropy_with_logits(input, target, options.weight,
                                                   options.pos_weight, name_of(options.reduction));
}
template <std::same_as<KLDivArgs> O = KLDivArgs>
Tensor kl_div(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::kl_div(input, target, name_of(options.reduction), options.log_target);
}
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target,
                        const PoissonNLLArgs& options = {});
Tensor soft_margin_loss(const Tensor& input, const Tensor& target,
                        const SoftMarginArgs& options = {});
Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target,
                            const HingeEmbeddingArgs& options = {});
Tensor multi_margin_loss(const Tensor& input, const Tensor& target,
                         const MultiMarginArgs& options = {});
Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target,
                              const MultiLabelMarginArgs& options = {});
Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                   const MultiLabelSoftMarginArgs& options = {});
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                         const GaussianNLLArgs& options = {});
Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                           const MarginRankingArgs& options = {});
Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                             const CosineEmbeddingArgs& options = {});
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginArgs& options = {});
// Throws Error(kShape) for different numbers of dimensions, Error(kValue) unless the margin is
// positive.
Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive,
                                         const Tensor& negative,
                                         const TripletMarginWithDistanceArgs& options = {});
// Returns -log P(target | input), summed over all alignments of a target of S labels with an input
// of T steps: labels in order, each repeated any number of times, with blanks between them. Takes
// log_probs (T, N, C) or (T, C), as log_softmax returns them, and integers: targets (N, S), or all
// targets in succession, and input_lengths and target_lengths (N). Lengths and targets are read on
// the host. The mean is that of the losses divided by their targets' lengths.
//
// The loss of a target that does not fit its input is infinity, with gradient 0, unless
// zero_infinity. Gradients are those with respect to log_probs; PyTorch's differ by exp(log_probs),
// which log_softmax removes. Throws Error(kShape, kType or kValue).
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CTCArgs& options = {});
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets,
                const std::vector<int64_t>& input_lengths,
                const std::vector<int64_t>& target_lengths, const CTCArgs& options = {});

}  // namespace mytorch::nn::functional

#include "mytorch/nn/functional_options.h"
