// Functions behind the modules, in one namespace: `namespace F = mytorch::nn::functional`.
//
// An operator of mytorch takes its arguments in order, or its optional ones by name:
//
//   F::cross_entropy(logits, labels, {}, "mean", -100, 0.05);
//   F::cross_entropy(logits, labels, {.label_smoothing = 0.05});
//   F::conv2d(x, weight, {.bias = bias, .padding = "same"});
//   F::max_pool2d(x, 3, {.stride = 2, .padding = 1});
//
// All other functions are compositions of operators, and take options by name alone.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

#include "mytorch/generator.h"
#include "mytorch/nn/activation.h"
#include "mytorch/nn/conv.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/loss.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/padding.h"
#include "mytorch/nn/pooling.h"
#include "mytorch/nn/upsampling.h"
#include "mytorch/ops/adaptive_avg_pool1d.h"
#include "mytorch/ops/adaptive_avg_pool2d.h"
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
#include "mytorch/ops/relu.h"
#include "mytorch/ops/relu6.h"
#include "mytorch/ops/rms_norm.h"
#include "mytorch/ops/scaled_dot_product_attention.h"
#include "mytorch/ops/selu.h"
#include "mytorch/ops/sigmoid.h"
#include "mytorch/ops/silu.h"
#include "mytorch/ops/smooth_l1_loss.h"
#include "mytorch/ops/softmax.h"
#include "mytorch/ops/softplus.h"
#include "mytorch/ops/softshrink.h"
#include "mytorch/ops/softsign.h"
#include "mytorch/ops/tanh.h"
#include "mytorch/ops/tanhshrink.h"
#include "mytorch/ops/threshold.h"
#include "mytorch/ops/upsample_nearest2d.h"

namespace mytorch::nn::functional {

using mytorch::adaptive_avg_pool1d;
using mytorch::adaptive_avg_pool2d;
using mytorch::avg_pool1d;
using mytorch::avg_pool2d;
using mytorch::batch_norm;
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
using mytorch::embedding;
using mytorch::gelu;
using mytorch::group_norm;
using mytorch::hardshrink;
using mytorch::hardsigmoid;
using mytorch::hardswish;
using mytorch::hardtanh;
using mytorch::huber_loss;
using mytorch::instance_norm;
using mytorch::kl_div;
using mytorch::l1_loss;
using mytorch::layer_norm;
using mytorch::leaky_relu;
using mytorch::linear;
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
using mytorch::relu;
using mytorch::relu6;
using mytorch::rms_norm;
using mytorch::scaled_dot_product_attention;
using mytorch::selu;
using mytorch::sigmoid;
using mytorch::silu;
using mytorch::smooth_l1_loss;
using mytorch::softmax;
using mytorch::softplus;
using mytorch::softshrink;
using mytorch::softsign;
using mytorch::tanh;
using mytorch::tanhshrink;
using mytorch::threshold;
using mytorch::upsample_nearest2d;

// ---- activations ----

struct GELUOptions {
  OneOf<Gelu> approximate = Gelu::kExact;
};
template <std::same_as<GELUOptions> O = GELUOptions>
Tensor gelu(const Tensor& input, const O& options) {
  return mytorch::gelu(input, name_of(options.approximate));
}

struct LeakyReLUOptions {
  double negative_slope = 0.01;
};
template <std::same_as<LeakyReLUOptions> O = LeakyReLUOptions>
Tensor leaky_relu(const Tensor& input, const O& options) {
  return mytorch::leaky_relu(input, options.negative_slope);
}

struct ELUOptions {
  double alpha = 1;
};
template <std::same_as<ELUOptions> O = ELUOptions>
Tensor elu(const Tensor& input, const O& options) {
  return mytorch::elu(input, options.alpha);
}

struct CELUOptions {
  double alpha = 1;
};
template <std::same_as<CELUOptions> O = CELUOptions>
Tensor celu(const Tensor& input, const O& options) {
  return mytorch::celu(input, options.alpha);
}

struct SoftplusOptions {
  double beta = 1;
  double threshold = 20;
};
template <std::same_as<SoftplusOptions> O = SoftplusOptions>
Tensor softplus(const Tensor& input, const O& options) {
  return mytorch::softplus(input, options.beta, options.threshold);
}

struct HardtanhOptions {
  double min_val = -1;
  double max_val = 1;
};
template <std::same_as<HardtanhOptions> O = HardtanhOptions>
Tensor hardtanh(const Tensor& input, const O& options) {
  return mytorch::hardtanh(input, options.min_val, options.max_val);
}

struct HardshrinkOptions {
  double lambd = 0.5;
};
template <std::same_as<HardshrinkOptions> O = HardshrinkOptions>
Tensor hardshrink(const Tensor& input, const O& options) {
  return mytorch::hardshrink(input, options.lambd);
}

struct SoftshrinkOptions {
  double lambd = 0.5;
};
template <std::same_as<SoftshrinkOptions> O = SoftshrinkOptions>
Tensor softshrink(const Tensor& input, const O& options) {
  return mytorch::softshrink(input, options.lambd);
}

struct ThresholdOptions {
  double threshold = 0;
  double value = 0;
};
template <std::same_as<ThresholdOptions> O = ThresholdOptions>
Tensor threshold(const Tensor& input, const O& options) {
  return mytorch::threshold(input, options.threshold, options.value);
}

struct SoftmaxOptions {
  int64_t dim = -1;
  std::optional<ScalarType> dtype = {};
};
template <std::same_as<SoftmaxOptions> O = SoftmaxOptions>
Tensor softmax(const Tensor& input, const O& options) {
  return mytorch::softmax(input, options.dim, options.dtype);
}

template <std::same_as<SoftmaxOptions> O = SoftmaxOptions>
Tensor log_softmax(const Tensor& input, const O& options) {
  return mytorch::log_softmax(input, options.dim, options.dtype);
}

// log(1 / (1 + exp(-x))); PyTorch's name of log_sigmoid.
inline Tensor logsigmoid(const Tensor& input) { return mytorch::log_sigmoid(input); }
// The first half of dimension `dim`, times the sigmoid of the second half.
Tensor glu(const Tensor& input, int64_t dim = -1);
// softmax(-input, dim).
Tensor softmin(const Tensor& input, int64_t dim, std::optional<ScalarType> dtype = {});
// max(x, 0) + weight * min(x, 0), with one weight, or one for each channel (dimension 1).
Tensor prelu(const Tensor& input, const Tensor& weight);

struct RReLUOptions {
  double lower = 1.0 / 8;
  double upper = 1.0 / 3;
  bool training = false;
  std::optional<Generator> generator = {};
};
// leaky_relu with a slope for each element, in training uniform in [lower, upper), else their mean.
Tensor rrelu(const Tensor& input, const RReLUOptions& options = {});

struct GumbelSoftmaxOptions {
  double tau = 1;
  bool hard = false;  // whether to return one-hot vectors, with the gradient of the soft ones
  int64_t dim = -1;
  std::optional<Generator> generator = {};
};
// Samples from the Gumbel-softmax distribution (Jang et al., ICLR 2017).
Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxOptions& options = {});

// ---- linear maps, distances, embeddings ----

// x1 @ weight[k] @ x2 + bias[k] for each output k.
Tensor bilinear(const Tensor& input1, const Tensor& input2, const Tensor& weight,
                const Tensor& bias = {});

struct PairwiseDistanceOptions {
  double p = 2;
  double eps = 1e-6;
  bool keepdim = false;
};
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2,
                         const PairwiseDistanceOptions& options = {});
struct CosineSimilarityOptions {
  int64_t dim = 1;
  double eps = 1e-8;
};
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2,
                         const CosineSimilarityOptions& options = {});
struct NormalizeOptions {
  double p = 2;
  int64_t dim = 1;
  double eps = 1e-12;
};
// Divides by the norm along a dimension, or by `eps` if the norm is smaller.
Tensor normalize(const Tensor& input, const NormalizeOptions& options = {});

struct EmbeddingBagFuncOptions {
  Tensor offsets = {};
  Tensor per_sample_weights = {};
  OneOf<EmbeddingBagMode> mode = EmbeddingBagMode::kMean;
  int64_t padding_idx = -1;
  bool scale_grad_by_freq = false;
  bool include_last_offset = false;
};
// See EmbeddingBag.
Tensor embedding_bag(const Tensor& indices, const Tensor& weight,
                     const EmbeddingBagFuncOptions& options = {});

struct AttentionOptions {
  Tensor attn_mask = {};
  double dropout_p = 0;
  bool is_causal = false;
  std::optional<double> scale = {};  // defaults to 1 / sqrt(width)
  bool enable_gqa = false;
};
template <std::same_as<AttentionOptions> O = AttentionOptions>
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const O& options) {
  return mytorch::scaled_dot_product_attention(query, key, value, options.attn_mask,
                                               options.dropout_p, options.is_causal, options.scale,
                                               options.enable_gqa);
}

// ---- convolutions ----

template <size_t n>
struct ConvFuncOptions {
  Tensor bias = {};
  Sizes<n> stride = 1;
  ConvPadding<n> padding = 0;  // or "same" or "valid"
  Sizes<n> dilation = 1;
  int64_t groups = 1;
};
template <size_t n>
struct ConvTransposeFuncOptions {
  Tensor bias = {};
  Sizes<n> stride = 1;
  Sizes<n> padding = 0;
  Sizes<n> output_padding = 0;
  int64_t groups = 1;
  Sizes<n> dilation = 1;
};
using Conv1dFuncOptions = ConvFuncOptions<1>;
using ConvTranspose1dFuncOptions = ConvTransposeFuncOptions<1>;
using Conv2dFuncOptions = ConvFuncOptions<2>;
using ConvTranspose2dFuncOptions = ConvTransposeFuncOptions<2>;
using Conv3dFuncOptions = ConvFuncOptions<3>;
using ConvTranspose3dFuncOptions = ConvTransposeFuncOptions<3>;
// Call conv1d, conv2d or conv3d, or their transposes.
template <size_t n>
Tensor conv(const Tensor& input, const Tensor& weight, const ConvFuncOptions<n>& options);
template <size_t n>
Tensor conv_transpose(const Tensor& input, const Tensor& weight,
                      const ConvTransposeFuncOptions<n>& options);
template <std::same_as<Conv1dFuncOptions> O = Conv1dFuncOptions>
Tensor conv1d(const Tensor& input, const Tensor& weight, const O& options) {
  return functional::conv(input, weight, options);
}
template <std::same_as<ConvTranspose1dFuncOptions> O = ConvTranspose1dFuncOptions>
Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const O& options) {
  return functional::conv_transpose(input, weight, options);
}
template <std::same_as<Conv2dFuncOptions> O = Conv2dFuncOptions>
Tensor conv2d(const Tensor& input, const Tensor& weight, const O& options) {
  return functional::conv(input, weight, options);
}
template <std::same_as<ConvTranspose2dFuncOptions> O = ConvTranspose2dFuncOptions>
Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const O& options) {
  return functional::conv_transpose(input, weight, options);
}
template <std::same_as<Conv3dFuncOptions> O = Conv3dFuncOptions>
Tensor conv3d(const Tensor& input, const Tensor& weight, const O& options) {
  return functional::conv(input, weight, options);
}
template <std::same_as<ConvTranspose3dFuncOptions> O = ConvTranspose3dFuncOptions>
Tensor conv_transpose3d(const Tensor& input, const Tensor& weight, const O& options) {
  return functional::conv_transpose(input, weight, options);
}

// ---- pooling ----

// Call the pooling of n spatial dimensions.
template <size_t n>
Tensor max_pool(const Tensor& input, const Sizes<n>& kernel_size, const MaxPoolOptions<n>& options);
template <size_t n>
Tensor avg_pool(const Tensor& input, const Sizes<n>& kernel_size, const AvgPoolOptions<n>& options);
template <std::same_as<MaxPool1dOptions> O = MaxPool1dOptions>
Tensor max_pool1d(const Tensor& input, Sizes<1> kernel_size, const O& options) {
  return functional::max_pool(input, kernel_size, options);
}
template <std::same_as<AvgPool1dOptions> O = AvgPool1dOptions>
Tensor avg_pool1d(const Tensor& input, Sizes<1> kernel_size, const O& options) {
  return functional::avg_pool(input, kernel_size, options);
}
template <std::same_as<MaxPool2dOptions> O = MaxPool2dOptions>
Tensor max_pool2d(const Tensor& input, Sizes<2> kernel_size, const O& options) {
  return functional::max_pool(input, kernel_size, options);
}
template <std::same_as<AvgPool2dOptions> O = AvgPool2dOptions>
Tensor avg_pool2d(const Tensor& input, Sizes<2> kernel_size, const O& options) {
  return functional::avg_pool(input, kernel_size, options);
}
inline Tensor max_pool3d(const Tensor& input, Sizes<3> kernel_size,
                         const MaxPool3dOptions& options = {}) {
  return functional::max_pool(input, kernel_size, options);
}
inline Tensor avg_pool3d(const Tensor& input, Sizes<3> kernel_size,
                         const AvgPool3dOptions& options = {}) {
  return functional::avg_pool(input, kernel_size, options);
}
Tensor lp_pool1d(const Tensor& input, double norm_type, Sizes<1> kernel_size,
                 const LPPool1dOptions& options = {});
Tensor adaptive_max_pool1d(const Tensor& input, Sizes<1> output_size);
Tensor lp_pool2d(const Tensor& input, double norm_type, Sizes<2> kernel_size,
                 const LPPool2dOptions& options = {});
Tensor adaptive_max_pool2d(const Tensor& input, Sizes<2> output_size);
Tensor lp_pool3d(const Tensor& input, double norm_type, Sizes<3> kernel_size,
                 const LPPool3dOptions& options = {});
Tensor adaptive_max_pool3d(const Tensor& input, Sizes<3> output_size);
Tensor adaptive_avg_pool3d(const Tensor& input, Sizes<3> output_size);

// ---- padding, resizing and rearranging ----

struct PadOptions {
  OneOf<PadMode> mode = PadMode::kConstant;  // or "reflect", "replicate", "circular"
  double value = 0;                          // for kConstant
};
template <std::same_as<PadOptions> O = PadOptions>
Tensor pad(const Tensor& input, IntList pad, const O& options) {
  return mytorch::pad(input, pad, name_of(options.mode), options.value);
}

// Resizes the spatial dimensions of (N, C, ...). See UpsampleOptions.
Tensor interpolate(const Tensor& input, const UpsampleOptions& options);

Tensor pixel_shuffle(const Tensor& input, int64_t upscale_factor);
Tensor pixel_unshuffle(const Tensor& input, int64_t downscale_factor);
Tensor channel_shuffle(const Tensor& input, int64_t groups);
Tensor unfold(const Tensor& input, Sizes<2> kernel_size, const UnfoldOptions& options = {});
Tensor fold(const Tensor& input, Sizes<2> output_size, Sizes<2> kernel_size,
            const FoldOptions& options = {});

// ---- normalization ----

struct BatchNormFuncOptions {
  Tensor weight = {};
  Tensor bias = {};
  bool training = false;
  double momentum = 0.1;
  double eps = 1e-5;
};
template <std::same_as<BatchNormFuncOptions> O = BatchNormFuncOptions>
Tensor batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                  const O& options) {
  return mytorch::batch_norm(input, options.weight, options.bias, running_mean, running_var,
                             options.training, options.momentum, options.eps);
}

struct InstanceNormFuncOptions {
  Tensor running_mean = {};
  Tensor running_var = {};
  Tensor weight = {};
  Tensor bias = {};
  bool use_input_stats = true;
  double momentum = 0.1;
  double eps = 1e-5;
};
template <std::same_as<InstanceNormFuncOptions> O = InstanceNormFuncOptions>
Tensor instance_norm(const Tensor& input, const O& options) {
  return mytorch::instance_norm(input, options.weight, options.bias, options.running_mean,
                                options.running_var, options.use_input_stats, options.momentum,
                                options.eps);
}

struct LayerNormFuncOptions {
  Tensor weight = {};
  Tensor bias = {};
  double eps = 1e-5;
};
using GroupNormFuncOptions = LayerNormFuncOptions;
struct RMSNormFuncOptions {
  Tensor weight = {};
  std::optional<double> eps = {};
};
template <std::same_as<LayerNormFuncOptions> O = LayerNormFuncOptions>
Tensor layer_norm(const Tensor& input, IntList normalized_shape, const O& options) {
  return mytorch::layer_norm(input, normalized_shape, options.weight, options.bias, options.eps);
}
template <std::same_as<GroupNormFuncOptions> O = GroupNormFuncOptions>
Tensor group_norm(const Tensor& input, int64_t num_groups, const O& options) {
  return mytorch::group_norm(input, num_groups, options.weight, options.bias, options.eps);
}
template <std::same_as<RMSNormFuncOptions> O = RMSNormFuncOptions>
Tensor rms_norm(const Tensor& input, IntList normalized_shape, const O& options) {
  return mytorch::rms_norm(input, normalized_shape, options.weight, options.eps);
}
Tensor local_response_norm(const Tensor& input, int64_t size,
                           const LocalResponseNormOptions& options = {});

// ---- dropout ----

struct DropoutOptions {
  double p = 0.5;
  bool training = true;
  std::optional<Generator> generator = {};
};
template <std::same_as<DropoutOptions> O = DropoutOptions>
Tensor dropout(const Tensor& input, const O& options) {
  return mytorch::dropout(input, options.p, options.training, options.generator);
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

// ---- losses. Those of mytorch also take their arguments in order, with texts ----

template <std::same_as<MSEOptions> O = MSEOptions>
Tensor mse_loss(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::mse_loss(input, target, name_of(options.reduction));
}
template <std::same_as<L1Options> O = L1Options>
Tensor l1_loss(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::l1_loss(input, target, name_of(options.reduction));
}
template <std::same_as<SmoothL1Options> O = SmoothL1Options>
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::smooth_l1_loss(input, target, name_of(options.reduction), options.beta);
}
template <std::same_as<HuberOptions> O = HuberOptions>
Tensor huber_loss(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::huber_loss(input, target, name_of(options.reduction), options.delta);
}
template <std::same_as<CrossEntropyOptions> O = CrossEntropyOptions>
Tensor cross_entropy(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::cross_entropy(input, target, options.weight, name_of(options.reduction),
                                options.ignore_index, options.label_smoothing);
}
template <std::same_as<NLLOptions> O = NLLOptions>
Tensor nll_loss(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::nll_loss(input, target, options.weight, name_of(options.reduction),
                           options.ignore_index);
}
template <std::same_as<BCEOptions> O = BCEOptions>
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::binary_cross_entropy(input, target, options.weight, name_of(options.reduction));
}
template <std::same_as<BCEWithLogitsOptions> O = BCEWithLogitsOptions>
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const O& options) {
  return mytorch::binary_cross_entropy_with_logits(input, target, options.weight,
                                                   options.pos_weight, name_of(options.reduction));
}
template <std::same_as<KLDivOptions> O = KLDivOptions>
Tensor kl_div(const Tensor& input, const Tensor& target, const O& options) {
  return mytorch::kl_div(input, target, name_of(options.reduction), options.log_target);
}
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target,
                        const PoissonNLLOptions& options = {});
Tensor soft_margin_loss(const Tensor& input, const Tensor& target,
                        const SoftMarginOptions& options = {});
Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target,
                            const HingeEmbeddingOptions& options = {});
Tensor multi_margin_loss(const Tensor& input, const Tensor& target,
                         const MultiMarginOptions& options = {});
Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target,
                              const MultiLabelMarginOptions& options = {});
Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                   const MultiLabelSoftMarginOptions& options = {});
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                         const GaussianNLLOptions& options = {});
Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                           const MarginRankingOptions& options = {});
Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                             const CosineEmbeddingOptions& options = {});
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options = {});

}  // namespace mytorch::nn::functional
