// libtorch's spelling of the options of functions: F::max_pool2d(x,
// F::MaxPool2dFuncOptions(3).stride(2)). The last part of mytorch/nn/functional.h.
#pragma once

#include "mytorch/nn/functional.h"

namespace mytorch::nn::functional {

using ReLUFuncOptions = ReLUOptions;
using ReLU6FuncOptions = ReLU6Options;
using SELUFuncOptions = SELUOptions;
using LeakyReLUFuncOptions = LeakyReLUOptions;
using ELUFuncOptions = ELUOptions;
using CELUFuncOptions = CELUOptions;
using GELUFuncOptions = GELUOptions;
using SoftplusFuncOptions = SoftplusOptions;
using HardtanhFuncOptions = HardtanhOptions;
using HardshrinkFuncOptions = HardshrinkOptions;
using SoftshrinkFuncOptions = SoftshrinkOptions;
using ThresholdFuncOptions = ThresholdOptions;
using GLUFuncOptions = GLUOptions;
using PairwiseDistanceFuncOptions = PairwiseDistanceOptions;
using CosineSimilarityFuncOptions = CosineSimilarityOptions;
using RReLUFuncOptions = Options<RReLUFuncArgs>;
using GumbelSoftmaxFuncOptions = Options<GumbelSoftmaxArgs>;
using SoftmaxFuncOptions = Options<SoftmaxFuncArgs>;
using NormalizeFuncOptions = Options<NormalizeArgs>;
using DropoutFuncOptions = Options<DropoutFuncArgs>;
using Dropout1dFuncOptions = DropoutFuncOptions;
using Dropout2dFuncOptions = DropoutFuncOptions;
using Dropout3dFuncOptions = DropoutFuncOptions;
using AlphaDropoutFuncOptions = DropoutFuncOptions;
using FeatureAlphaDropoutFuncOptions = DropoutFuncOptions;
using LogSoftmaxFuncOptions = SoftmaxFuncOptions;
using SoftminFuncOptions = SoftmaxOptions;
using EmbeddingFuncOptions = Options<EmbeddingArgs>;
using EmbeddingBagFuncOptions = Options<EmbeddingBagFuncArgs>;
using Conv1dFuncOptions = Options<ConvFuncArgs<1>>;
using ConvTranspose1dFuncOptions = Options<ConvTransposeFuncArgs<1>>;
using Conv2dFuncOptions = Options<ConvFuncArgs<2>>;
using ConvTranspose2dFuncOptions = Options<ConvTransposeFuncArgs<2>>;
using Conv3dFuncOptions = Options<ConvFuncArgs<3>>;
using ConvTranspose3dFuncOptions = Options<ConvTransposeFuncArgs<3>>;
using MaxPool1dFuncOptions = MaxPool1dOptions;
using AvgPool1dFuncOptions = AvgPool1dOptions;
using LPPool1dFuncOptions = LPPool1dOptions;
using AdaptiveAvgPool1dFuncOptions = AdaptiveAvgPool1dOptions;
using AdaptiveMaxPool1dFuncOptions = AdaptiveMaxPool1dOptions;
using MaxPool2dFuncOptions = MaxPool2dOptions;
using AvgPool2dFuncOptions = AvgPool2dOptions;
using LPPool2dFuncOptions = LPPool2dOptions;
using AdaptiveAvgPool2dFuncOptions = AdaptiveAvgPool2dOptions;
using AdaptiveMaxPool2dFuncOptions = AdaptiveMaxPool2dOptions;
using MaxPool3dFuncOptions = MaxPool3dOptions;
using AvgPool3dFuncOptions = AvgPool3dOptions;
using LPPool3dFuncOptions = LPPool3dOptions;
using AdaptiveAvgPool3dFuncOptions = AdaptiveAvgPool3dOptions;
using AdaptiveMaxPool3dFuncOptions = AdaptiveMaxPool3dOptions;
using PadFuncOptions = Options<PadArgs, std::vector<int64_t>>;
using InterpolateFuncOptions = UpsampleOptions;
using GridSampleFuncOptions = GridSampleOptions;
using FoldFuncOptions = FoldOptions;
using UnfoldFuncOptions = UnfoldOptions;
using PixelShuffleFuncOptions = PixelShuffleOptions;
using PixelUnshuffleFuncOptions = PixelUnshuffleOptions;
using BatchNormFuncOptions = Options<BatchNormFuncArgs>;
using InstanceNormFuncOptions = Options<InstanceNormFuncArgs>;
using LayerNormFuncOptions = Options<LayerNormFuncArgs, std::vector<int64_t>>;
using RMSNormFuncOptions = Options<RMSNormFuncArgs, std::vector<int64_t>>;
using GroupNormFuncOptions = Options<GroupNormFuncArgs, int64_t>;
using LocalResponseNormFuncOptions = LocalResponseNormOptions;
using MSELossFuncOptions = MSELossOptions;
using L1LossFuncOptions = L1LossOptions;
using SmoothL1LossFuncOptions = SmoothL1LossOptions;
using HuberLossFuncOptions = HuberLossOptions;
using PoissonNLLLossFuncOptions = PoissonNLLLossOptions;
using GaussianNLLLossFuncOptions = GaussianNLLLossOptions;
using NLLLossFuncOptions = NLLLossOptions;
using MultiMarginLossFuncOptions = MultiMarginLossOptions;
using SoftMarginLossFuncOptions = SoftMarginLossOptions;
using HingeEmbeddingLossFuncOptions = HingeEmbeddingLossOptions;
using MarginRankingLossFuncOptions = MarginRankingLossOptions;
using CosineEmbeddingLossFuncOptions = CosineEmbeddingLossOptions;
using TripletMarginLossFuncOptions = TripletMarginLossOptions;
using TripletMarginWithDistanceLossFuncOptions = TripletMarginWithDistanceLossOptions;
using CTCLossFuncOptions = CTCLossOptions;
using KLDivFuncOptions = KLDivLossOptions;
using CrossEntropyFuncOptions = CrossEntropyLossOptions;
using BinaryCrossEntropyFuncOptions = BCELossOptions;
using BinaryCrossEntropyWithLogitsFuncOptions = BCEWithLogitsLossOptions;
using MultilabelMarginLossFuncOptions = MultiLabelMarginLossOptions;
using MultilabelSoftMarginLossFuncOptions = MultiLabelSoftMarginLossOptions;

// Overloads that take a builder after one, two or three tensors.
// The functions are qualified, so that operators of the same names are not candidates.
#define MYTORCH_BUILDER_1(function)                                          \
  template <class Args, class... First>                                      \
  Tensor function(const Tensor& a, const Options<Args, First...>& options) { \
    return options.apply([&](const auto&... o) {                             \
      static_assert(                                                         \
          requires { functional::function(a, o...); },                       \
          "these are the options of another function");                      \
      return functional::function(a, o...);                                  \
    });                                                                      \
  }
#define MYTORCH_BUILDER_2(function)                                                           \
  template <class Args, class... First>                                                       \
  Tensor function(const Tensor& a, const Tensor& b, const Options<Args, First...>& options) { \
    return options.apply([&](const auto&... o) {                                              \
      static_assert(                                                                          \
          requires { function(a, b, o...); }, "these are the options of another function");   \
      return function(a, b, o...);                                                            \
    });                                                                                       \
  }
#define MYTORCH_BUILDER_3(function)                                                            \
  template <class Args, class... First>                                                        \
  Tensor function(const Tensor& a, const Tensor& b, const Tensor& c,                           \
                  const Options<Args, First...>& options) {                                    \
    return options.apply([&](const auto&... o) {                                               \
      static_assert(                                                                           \
          requires { function(a, b, c, o...); }, "these are the options of another function"); \
      return function(a, b, c, o...);                                                          \
    });                                                                                        \
  }
// A misspelt name in braces, or another argument that the function does not take, selects the
// deleted overload, whose message has the names of the options, the fields of Args.
#define MYTORCH_NAMED_1(function, Args, names)                      \
  MYTORCH_BUILDER_1(function)                                       \
  template <class TakesOptionsOf = Args, OptionNames Named = names> \
  void function(const Tensor&, ...) = delete;
#define MYTORCH_NAMED_2(function, Args, names)                      \
  MYTORCH_BUILDER_2(function)                                       \
  template <class TakesOptionsOf = Args, OptionNames Named = names> \
  void function(const Tensor&, const Tensor&, ...) = delete;
#define MYTORCH_NAMED_3(function, Args, names)                      \
  MYTORCH_BUILDER_3(function)                                       \
  template <class TakesOptionsOf = Args, OptionNames Named = names> \
  void function(const Tensor&, const Tensor&, const Tensor&, ...) = delete;
// clang-format off
MYTORCH_NAMED_1(relu, InplaceArgs, "inplace")
MYTORCH_NAMED_1(relu6, InplaceArgs, "inplace")
MYTORCH_NAMED_1(selu, InplaceArgs, "inplace")
MYTORCH_NAMED_1(leaky_relu, LeakyReLUArgs, "negative_slope, inplace")
MYTORCH_NAMED_1(elu, ELUArgs, "alpha, inplace")
MYTORCH_NAMED_1(celu, CELUArgs, "alpha, inplace")
MYTORCH_NAMED_1(gelu, GELUArgs, "approximate")
MYTORCH_NAMED_1(softplus, SoftplusArgs, "beta, threshold")
MYTORCH_NAMED_1(hardtanh, HardtanhArgs, "min_val, max_val, inplace")
MYTORCH_NAMED_1(hardshrink, HardshrinkArgs, "lambd")
MYTORCH_NAMED_1(softshrink, SoftshrinkArgs, "lambd")
MYTORCH_NAMED_1(threshold, ThresholdArgs, "threshold, value, inplace")
MYTORCH_NAMED_1(glu, GLUArgs, "dim")
MYTORCH_NAMED_1(rrelu, RReLUFuncArgs, "lower, upper, training, generator, inplace")
MYTORCH_NAMED_1(softmax, SoftmaxFuncArgs, "dim, dtype")
MYTORCH_NAMED_1(log_softmax, SoftmaxFuncArgs, "dim, dtype")
MYTORCH_NAMED_1(softmin, SoftmaxArgs, "dim")
MYTORCH_NAMED_1(gumbel_softmax, GumbelSoftmaxArgs, "tau, hard, dim, generator")
MYTORCH_NAMED_1(normalize, NormalizeArgs, "p, dim, eps")
MYTORCH_NAMED_1(dropout, DropoutFuncArgs, "p, training, generator, inplace")
MYTORCH_NAMED_1(dropout1d, DropoutFuncArgs, "p, training, generator, inplace")
MYTORCH_NAMED_1(dropout2d, DropoutFuncArgs, "p, training, generator, inplace")
MYTORCH_NAMED_1(dropout3d, DropoutFuncArgs, "p, training, generator, inplace")
MYTORCH_NAMED_1(alpha_dropout, DropoutFuncArgs, "p, training, generator, inplace")
MYTORCH_NAMED_1(feature_alpha_dropout, DropoutFuncArgs, "p, training, generator, inplace")
MYTORCH_NAMED_1(max_pool1d, MaxPoolArgs<1>, "stride, padding, dilation, ceil_mode")
MYTORCH_NAMED_1(max_pool2d, MaxPoolArgs<2>, "stride, padding, dilation, ceil_mode")
MYTORCH_NAMED_1(max_pool3d, MaxPoolArgs<3>, "stride, padding, dilation, ceil_mode")
MYTORCH_NAMED_1(avg_pool1d, AvgPoolArgs<1>,
                "stride, padding, ceil_mode, count_include_pad, divisor_override")
MYTORCH_NAMED_1(avg_pool2d, AvgPoolArgs<2>,
                "stride, padding, ceil_mode, count_include_pad, divisor_override")
MYTORCH_NAMED_1(avg_pool3d, AvgPoolArgs<3>,
                "stride, padding, ceil_mode, count_include_pad, divisor_override")
MYTORCH_NAMED_1(lp_pool1d, LPPoolArgs<1>, "stride, ceil_mode")
MYTORCH_NAMED_1(lp_pool2d, LPPoolArgs<2>, "stride, ceil_mode")
MYTORCH_NAMED_1(lp_pool3d, LPPoolArgs<3>, "stride, ceil_mode")
MYTORCH_BUILDER_1(adaptive_avg_pool1d)
MYTORCH_BUILDER_1(adaptive_avg_pool2d)
MYTORCH_BUILDER_1(adaptive_avg_pool3d)
MYTORCH_BUILDER_1(adaptive_max_pool1d)
MYTORCH_BUILDER_1(adaptive_max_pool2d)
MYTORCH_BUILDER_1(adaptive_max_pool3d)
template <std::same_as<AdaptiveMaxPool1dFuncOptions> O>
std::tuple<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& input, const O& options) {
  return options.apply([&](const auto& size) { return adaptive_max_pool1d_with_indices(input, size); });
}
template <std::same_as<AdaptiveMaxPool2dFuncOptions> O>
std::tuple<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& input, const O& options) {
  return options.apply([&](const auto& size) { return adaptive_max_pool2d_with_indices(input, size); });
}
template <std::same_as<AdaptiveMaxPool3dFuncOptions> O>
std::tuple<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& input, const O& options) {
  return options.apply([&](const auto& size) { return adaptive_max_pool3d_with_indices(input, size); });
}
MYTORCH_NAMED_1(pad, PadArgs, "mode, value")
MYTORCH_NAMED_1(interpolate, UpsampleArgs, "size, scale_factor, mode, align_corners, antialias, recompute_scale_factor")
MYTORCH_NAMED_1(fold, FoldArgs, "dilation, padding, stride")
MYTORCH_NAMED_1(unfold, UnfoldArgs, "dilation, padding, stride")
MYTORCH_BUILDER_1(pixel_shuffle)
MYTORCH_BUILDER_1(pixel_unshuffle)
MYTORCH_NAMED_1(instance_norm, InstanceNormFuncArgs,
                "running_mean, running_var, weight, bias, use_input_stats, momentum, eps")
MYTORCH_NAMED_1(layer_norm, LayerNormFuncArgs, "weight, bias, eps")
MYTORCH_NAMED_1(rms_norm, RMSNormFuncArgs, "weight, eps")
MYTORCH_NAMED_1(group_norm, GroupNormFuncArgs, "weight, bias, eps")
MYTORCH_NAMED_1(local_response_norm, LocalResponseNormArgs, "alpha, beta, k")
MYTORCH_NAMED_2(pairwise_distance, PairwiseDistanceArgs, "p, eps, keepdim")
MYTORCH_NAMED_2(cosine_similarity, CosineSimilarityArgs, "dim, eps")
MYTORCH_NAMED_2(embedding, EmbeddingArgs, "padding_idx, scale_grad_by_freq, max_norm, norm_type")
MYTORCH_NAMED_2(grid_sample, GridSampleArgs, "mode, padding_mode, align_corners")
MYTORCH_NAMED_2(embedding_bag, EmbeddingBagFuncArgs,
                "offsets, per_sample_weights, mode, padding_idx, scale_grad_by_freq, "
                "include_last_offset, max_norm, norm_type")
MYTORCH_NAMED_2(conv1d, ConvFuncArgs<1>, "bias, stride, padding, dilation, groups")
MYTORCH_NAMED_2(conv2d, ConvFuncArgs<2>, "bias, stride, padding, dilation, groups")
MYTORCH_NAMED_2(conv3d, ConvFuncArgs<3>, "bias, stride, padding, dilation, groups")
MYTORCH_NAMED_2(conv_transpose1d, ConvTransposeFuncArgs<1>,
                "bias, stride, padding, output_padding, groups, dilation")
MYTORCH_NAMED_2(conv_transpose2d, ConvTransposeFuncArgs<2>,
                "bias, stride, padding, output_padding, groups, dilation")
MYTORCH_NAMED_2(conv_transpose3d, ConvTransposeFuncArgs<3>,
                "bias, stride, padding, output_padding, groups, dilation")
MYTORCH_NAMED_2(mse_loss, MSEArgs, "reduction")
MYTORCH_NAMED_2(l1_loss, L1Args, "reduction")
MYTORCH_NAMED_2(smooth_l1_loss, SmoothL1Args, "beta, reduction")
MYTORCH_NAMED_2(huber_loss, HuberArgs, "delta, reduction")
MYTORCH_NAMED_2(poisson_nll_loss, PoissonNLLArgs, "log_input, full, eps, reduction")
MYTORCH_NAMED_2(cross_entropy, CrossEntropyArgs, "weight, reduction, ignore_index, label_smoothing")
MYTORCH_NAMED_2(nll_loss, NLLArgs, "weight, reduction, ignore_index")
MYTORCH_NAMED_2(binary_cross_entropy, BCEArgs, "weight, reduction")
MYTORCH_NAMED_2(binary_cross_entropy_with_logits, BCEWithLogitsArgs,
                "weight, pos_weight, reduction")
MYTORCH_NAMED_2(kl_div, KLDivArgs, "reduction, log_target")
MYTORCH_NAMED_2(soft_margin_loss, SoftMarginArgs, "reduction")
MYTORCH_NAMED_2(hinge_embedding_loss, HingeEmbeddingArgs, "margin, reduction")
MYTORCH_NAMED_2(multi_margin_loss, MultiMarginArgs, "p, margin, weight, reduction")
MYTORCH_NAMED_2(multilabel_margin_loss, MultiLabelMarginArgs, "reduction")
MYTORCH_NAMED_2(multilabel_soft_margin_loss, MultiLabelSoftMarginArgs, "weight, reduction")
MYTORCH_NAMED_3(batch_norm, BatchNormFuncArgs, "weight, bias, training, momentum, eps")
MYTORCH_NAMED_3(gaussian_nll_loss, GaussianNLLArgs, "full, eps, reduction")
MYTORCH_NAMED_3(margin_ranking_loss, MarginRankingArgs, "margin, reduction")
MYTORCH_NAMED_3(cosine_embedding_loss, CosineEmbeddingArgs, "margin, reduction")
MYTORCH_NAMED_3(triplet_margin_loss, TripletMarginArgs, "margin, p, eps, swap, reduction")
MYTORCH_NAMED_3(triplet_margin_with_distance_loss, TripletMarginWithDistanceArgs,
                "distance_function, margin, swap, reduction")
// clang-format on
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CTCLossFuncOptions& options);
#undef MYTORCH_BUILDER_1
#undef MYTORCH_BUILDER_2
#undef MYTORCH_BUILDER_3
#undef MYTORCH_NAMED_1
#undef MYTORCH_NAMED_2
#undef MYTORCH_NAMED_3

}  // namespace mytorch::nn::functional
