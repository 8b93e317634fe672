// Modules and losses, compared with PyTorch 2.x.
#include "tests/nn/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/nn/activation.h"
#include "mytorch/nn/functional.h"
#include "mytorch/nn/recurrent.h"
#include "mytorch/nn/transformer.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/allclose.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/gt.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/triu.h"
#include "mytorch/ops/where.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

namespace F = functional;
using mytorch::testing::expect_error;

Tensor signs(const Shape& sizes) {
  const Tensor ones = wave(sizes, 7) * 0 + 1;
  return where(gt(wave(sizes, 7), 0), ones, -ones);
}

Tensor counts() { return arange(12, kFloat64).view({3, 4}); }

Tensor bag(const Tensor& weight, const char* mode) {
  return F::embedding_bag(
      tensor(std::vector<int64_t>{0, 2, 5, 1, 1, 2, 3}), weight,
      {.offsets = tensor(std::vector<int64_t>{0, 3, 3, 6}), .mode = mode, .padding_idx = 2});
}

TEST(Golden, ModulesAgreeWithPyTorch) {
  expect_module("Conv1d", Conv1d(4, 6, 3, {.stride = 2, .padding = 2, .dilation = 2, .groups = 2}),
                {2, 4, 9}, {{2, 6, 5}, -2.82126318431, 2.71890690959});
  expect_module("Conv3d", Conv3d(2, 3, {1, 2, 3}, {.padding = {0, 1, 2}}), {2, 2, 3, 4, 5},
                {{2, 3, 3, 5, 7}, -1.64134559321, -2.76587121279});
  expect_module("Conv2d same", Conv2d(2, 3, {2, 4}, {.padding = "same", .dilation = {1, 2}}),
                {2, 2, 5, 6}, {{2, 3, 5, 6}, -5.29763068659, 0.6513527022});
  expect_module("Conv2d reflect",
                Conv2d(2, 3, 3, {.padding = {1, 2}, .padding_mode = PaddingMode::kReflect}),
                {2, 2, 5, 6}, {{2, 3, 5, 8}, -12.468169186, 7.08290016709});
  expect_module("Conv2d replicate",
                Conv2d(2, 3, 4, {.padding = "same", .padding_mode = "replicate"}), {2, 2, 5, 6},
                {{2, 3, 5, 6}, -8.36587546347, 12.1146516676});
  expect_module("Conv1d circular", Conv1d(2, 3, 3, {.padding = 2, .padding_mode = "circular"}),
                {2, 2, 5}, {{2, 3, 7}, -6.96464090695, 7.30335740107});
  expect_module(
      "ConvTranspose1d",
      ConvTranspose1d(4, 6, 3, {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2}),
      {2, 4, 5}, {{2, 6, 10}, 3.367110892, 0.920885766085});
  expect_module(
      "ConvTranspose2d",
      ConvTranspose2d(3, 2, {2, 3}, {.stride = {2, 1}, .bias = false, .dilation = {1, 2}}),
      {2, 3, 4, 5}, {{2, 2, 8, 9}, 2.25900967399, -1.48366172486});
  expect_module("ConvTranspose3d", ConvTranspose3d(2, 3, 2, {.stride = 2}), {1, 2, 2, 3, 2},
                {{1, 3, 4, 6, 4}, 0.1274876606, 0.902922083967});
  expect_module("MaxPool1d", MaxPool1d(3, {.stride = 2, .padding = 1, .dilation = 2}), {2, 3, 9},
                {{2, 3, 4}, -1.48418374224, 0.711909661241});
  expect_module(
      "MaxPool3d",
      MaxPool3d({2, 3, 2}, {.stride = {1, 2, 2}, .padding = {1, 1, 0}, .ceil_mode = true}),
      {2, 2, 4, 5, 5}, {{2, 2, 5, 3, 3}, -2.36264978239, 4.34529953355});
  expect_module("AvgPool1d", AvgPool1d(3, {.stride = 2, .padding = 1, .count_include_pad = false}),
                {2, 3, 8}, {{2, 3, 4}, 1.27204161559, -1.62755962692});
  expect_module(
      "AvgPool3d",
      AvgPool3d({2, 3, 2},
                {.stride = 2, .padding = {1, 1, 0}, .ceil_mode = true, .count_include_pad = false}),
      {2, 2, 4, 5, 5}, {{2, 2, 3, 3, 3}, -0.416246475049, 0.351152880824});
  expect_module("AvgPool3d divisor", AvgPool3d(2, {.divisor_override = 5}), {2, 2, 4, 5, 5},
                {{2, 2, 2, 2, 2}, 1.05301821557, -0.953820768496});
  expect_module("LPPool1d", LPPool1d(2, 3, {.stride = 2}), {2, 3, 8},
                {{2, 3, 3}, -0.183787467526, -0.0369609382907});
  expect_module("LPPool2d", LPPool2d(2, {2, 3}, {.stride = 1}), {2, 3, 5, 6},
                {{2, 3, 4, 4}, -6.58383627073, 6.03899983639});
  expect_module("LPPool3d", LPPool3d(2, 2), {2, 3, 4, 4, 4},
                {{2, 3, 2, 2, 2}, -2.13188207021, 2.08910311852});
  expect_module("AdaptiveAvgPool1d", AdaptiveAvgPool1d(4), {2, 3, 7},
                {{2, 3, 4}, -0.773432565692, 0.680359210531});
  expect_module("AdaptiveAvgPool3d", AdaptiveAvgPool3d({2, 3, 1}), {2, 3, 5, 4, 6},
                {{2, 3, 2, 3, 1}, -0.0119376492818, 0.0220077019488});
  expect_module("AdaptiveMaxPool1d", AdaptiveMaxPool1d(4), {2, 3, 7},
                {{2, 3, 4}, -2.175078169, 1.48888880419});
  expect_module("AdaptiveMaxPool2d", AdaptiveMaxPool2d({3, 5}), {2, 3, 7, 6},
                {{2, 3, 3, 5}, -0.134116434895, 1.39136046157});
  expect_module("AdaptiveMaxPool3d", AdaptiveMaxPool3d({2, 3, 1}), {2, 3, 5, 4, 6},
                {{2, 3, 2, 3, 1}, 0.0179251420934, 0.11881512385});
  expect_module("ZeroPad2d", ZeroPad2d({1, 2, 0, 3}), {1, 2, 3, 4},
                {{1, 2, 6, 7}, -1.50236230069, 1.47727477518});
  expect_module("ConstantPad1d", ConstantPad1d({2, 1}, 0.5), {1, 2, 3},
                {{1, 2, 6}, -0.352224948971, 1.23667387437});
  expect_module("ReflectionPad3d", ReflectionPad3d(1), {1, 2, 3, 2, 4},
                {{1, 2, 5, 4, 6}, -3.36429604784, 4.91991746446});
  expect_module("ReplicationPad2d", ReplicationPad2d({3, 1, 0, 2}), {1, 2, 3, 4},
                {{1, 2, 5, 8}, -14.0283443289, 13.3736176173});
  expect_module("CircularPad1d", CircularPad1d({2, 3}), {2, 2, 4},
                {{2, 2, 9}, 0.207283058223, -0.296930516393});
  expect_module("BatchNorm3d", BatchNorm3d(3), {2, 3, 2, 2, 3},
                {{2, 3, 2, 2, 3}, -34.9324136645, -9.13495312761});
  expect_module("InstanceNorm1d", InstanceNorm1d(3, {.affine = true}), {2, 3, 5},
                {{2, 3, 5}, -7.81583013716, -4.34573508692});
  expect_module("InstanceNorm2d unbatched", InstanceNorm2d(3), {3, 4, 5},
                {{3, 4, 5}, -32.7368879597, -9.29217705609});
  expect_module("GroupNorm", GroupNorm(2, 4), {2, 4, 3, 3},
                {{2, 4, 3, 3}, -28.618893074, -7.5025900541});
  expect_module("RMSNorm", RMSNorm({3, 4}, {.eps = 1e-3}), {2, 3, 4},
                {{2, 3, 4}, -4.39378221637, -0.742116557762});
  expect_module("LocalResponseNorm", LocalResponseNorm(3, {.alpha = 0.5, .k = 2}), {2, 5, 3, 2},
                {{2, 5, 3, 2}, -12.5750621927, 6.50384880953});
  // Results of so few channels that PyTorch's windows leave out none; gradients of
  // LocalResponseNorm, since those of CrossMapLRN2d are of other windows.
  expect_module("CrossMapLRN2d", CrossMapLRN2d(5, {.alpha = 0.5, .k = 2}), {2, 3, 3, 2},
                {{2, 3, 3, 2}, -7.94880940349, 4.53297505103});
  expect_module("CrossMapLRN2d even", CrossMapLRN2d(4, {.alpha = 0.5, .k = 2}), {2, 2, 3, 2},
                {{2, 2, 3, 2}, -4.91102697058, 2.66969907315});
  expect_module("Unflatten", Unflatten(1, {2, -1}), {2, 6, 3},
                {{2, 2, 3, 3}, -14.1152185365, 9.42507742153});
  expect_module("Upsample nearest 1d", Upsample({.scale_factor = 1.7}), {1, 2, 5},
                {{1, 2, 8}, -0.240330359087, 1.33531572699});
  expect_module("Upsample nearest", Upsample({.size = {5, 7}}), {1, 2, 3, 4},
                {{1, 2, 5, 7}, 2.61800329815, -3.58008104295});
  expect_module("Upsample nearest-exact", Upsample({.size = 8, .mode = "nearest-exact"}), {1, 2, 5},
                {{1, 2, 8}, -0.634077357702, 2.06950645005});
  expect_module("Upsample linear", Upsample({.size = 8, .mode = "linear"}), {1, 2, 5},
                {{1, 2, 8}, -0.96526355524, 2.2300483606});
  expect_module("Upsample bilinear", Upsample({.scale_factor = {2, 1.5}, .mode = "bilinear"}),
                {1, 2, 3, 4}, {{1, 2, 6, 6}, 2.4631084862, -2.51431319789});
  expect_module("Upsample bilinear corners",
                Upsample({.size = {5, 7}, .mode = "bilinear", .align_corners = true}), {1, 2, 3, 4},
                {{1, 2, 5, 7}, 1.73370928283, -1.59000365439});
  expect_module("Upsample bicubic", Upsample({.size = {7, 3}, .mode = InterpolateMode::kBicubic}),
                {1, 2, 4, 5}, {{1, 2, 7, 3}, -6.05002641667, 5.76352385537});
  expect_module("Upsample bicubic corners",
                Upsample({.size = {7, 3}, .mode = "bicubic", .align_corners = true}), {1, 2, 4, 5},
                {{1, 2, 7, 3}, -4.45531338557, 4.17388770317});
  expect_module("Upsample trilinear", Upsample({.size = {3, 5, 6}, .mode = "trilinear"}),
                {1, 2, 2, 3, 4}, {{1, 2, 3, 5, 6}, -0.771947241635, 3.30352867866});
  expect_module("Upsample area", Upsample({.size = {3, 4}, .mode = "area"}), {1, 2, 5, 6},
                {{1, 2, 3, 4}, -2.80917228391, 1.93454845805});
  expect_module("PixelShuffle", PixelShuffle(2), {2, 8, 2, 3},
                {{2, 2, 4, 6}, 1.68853261765, -1.48435741049});
  expect_module("PixelUnshuffle", PixelUnshuffle(2), {2, 2, 4, 6},
                {{2, 8, 2, 3}, 1.70551897663, -1.50824077475});
  expect_module("ChannelShuffle", ChannelShuffle(2), {2, 6, 2, 3},
                {{2, 6, 2, 3}, -0.0455440181393, -1.5359721655});
  expect_module("Unfold", Unfold({2, 3}, {.dilation = {2, 1}, .padding = 1, .stride = {1, 2}}),
                {2, 2, 5, 6}, {{2, 12, 15}, 0.708838050339, -0.203223558985});
  expect_module("Fold", Fold({5, 6}, {2, 3}, {.dilation = {2, 1}, .padding = 1, .stride = {1, 2}}),
                {2, 12, 15}, {{2, 2, 5, 6}, 3.03304471431, -3.47113249961});
  expect_module("Tanhshrink", Tanhshrink(), {2, 4, 3, 2},
                {{2, 4, 3, 2}, -3.52209422622, 7.43972475368});
  expect_module("Hardshrink", Hardshrink(0.3), {2, 4, 3, 2},
                {{2, 4, 3, 2}, -18.1008622642, 14.0232723757});
  expect_module("Softshrink", Softshrink(0.3), {2, 4, 3, 2},
                {{2, 4, 3, 2}, -11.5760218176, 14.0232723757});
  expect_module("Threshold", Threshold(0.1, -2), {2, 4, 3, 2},
                {{2, 4, 3, 2}, -32.4514117106, 7.56739856202});
  expect_module("GLU", GLU(1), {2, 4, 3, 2}, {{2, 2, 3, 2}, 0.875343841141, -2.05482516715});
  expect_module("Softmin", Softmin(1), {2, 4, 3, 2}, {{2, 4, 3, 2}, 3.88577232086, -1.83996190814});
  expect_module("Softmax2d", Softmax2d(), {2, 4, 3, 2},
                {{2, 4, 3, 2}, -4.1562432627, 2.09871113243});
}

TEST(Golden, FunctionsAgreeWithPyTorch) {
  expect_golden("ConvTranspose2d output_size",
                [](const std::vector<Tensor>& x) {
                  ConvTranspose2d up = filled_module(ConvTranspose2d(3, 2, 3, {.stride = 3}));
                  return up(x[0], {13, 14});
                },
                {{1, 3, 4, 4}}, {{1, 2, 13, 14}, -2.85314207446, 1.7466795093});
  expect_golden("InstanceNorm3d tracked",
                [](const std::vector<Tensor>& x) {
                  InstanceNorm3d norm(2, {.track_running_stats = true});
                  norm.to(kFloat64);
                  norm.eval();
                  return norm(x[0]);
                },
                {{1, 2, 2, 2, 3}}, {{1, 2, 2, 2, 3}, -8.68874758336, 5.53539636102});
  expect_golden(
      "Bilinear",
      [](const std::vector<Tensor>& x) { return filled_module(Bilinear(3, 4, 2))(x[0], x[1]); },
      {{5, 2, 3}, {5, 2, 4}}, {{5, 2, 2}, 0.554904613416, 0.421112877797});
  expect_golden("EmbeddingBag sum", [](const std::vector<Tensor>& x) { return bag(x[0], "sum"); },
                {{6, 4}}, {{4, 4}, -1.59010634057, 1.74365381851});
  expect_golden("EmbeddingBag mean", [](const std::vector<Tensor>& x) { return bag(x[0], "mean"); },
                {{6, 4}}, {{4, 4}, -1.60012156606, 1.46959553962});
  expect_golden("EmbeddingBag max", [](const std::vector<Tensor>& x) { return bag(x[0], "max"); },
                {{6, 4}}, {{4, 4}, -2.03205850889, 2.26390796912});
  expect_golden(
      "EmbeddingBag weighted",
      [](const std::vector<Tensor>& x) {
        const Tensor ids = tensor(std::vector<int64_t>{0, 2, 5, 1, 1, 3}).view({2, 3});
        return F::embedding_bag(ids, x[0], {.per_sample_weights = wave({2, 3}, 1), .mode = "sum"});
      },
      {{6, 4}}, {{2, 4}, -0.377990643584, -0.042571562835});
  expect_golden("RReLU",
                [](const std::vector<Tensor>& x) {
                  RReLU rrelu;
                  rrelu.eval();
                  return rrelu(x[0]);
                },
                {{2, 4, 3, 2}}, {{2, 4, 3, 2}, -11.9079686, 8.38884620027});
  expect_golden("PairwiseDistance",
                [](const std::vector<Tensor>& x) { return PairwiseDistance(3)(x[0], x[1]); },
                {{5, 4}, {5, 4}}, {{5}, -2.23720434582, 2.02238077515});
  expect_golden("CosineSimilarity",
                [](const std::vector<Tensor>& x) { return CosineSimilarity()(x[0], x[1]); },
                {{5, 4, 2}, {5, 4, 2}}, {{5, 2}, 0.689044340055, -0.0562041907442});
  expect_golden("normalize",
                [](const std::vector<Tensor>& x) { return F::normalize(x[0], {.p = 3, .dim = 0}); },
                {{3, 4}}, {{3, 4}, -3.98727051455, -1.29922164225});
  expect_golden(
      "PoissonNLLLoss",
      [](const std::vector<Tensor>& x) { return PoissonNLLLoss({.full = true})(x[0], counts()); },
      {{3, 4}}, {{}, 4.68264273366, -0.0681318550363});
  expect_golden("PoissonNLLLoss rate",
                [](const std::vector<Tensor>& x) {
                  return PoissonNLLLoss({.log_input = false})(exp(x[0]), counts());
                },
                {{3, 4}}, {{}, 0.622995788314, -0.0681318446673});
  expect_golden("GaussianNLLLoss",
                [](const std::vector<Tensor>& x) {
                  return GaussianNLLLoss({.full = true, .reduction = "sum"})(x[0], wave({3, 4}, 5),
                                                                             exp(x[1]));
                },
                {{3, 4}, {3, 4}}, {{}, 10.8375695136, -7.15552491536});
  expect_golden("GaussianNLLLoss rows",
                [](const std::vector<Tensor>& x) {
                  return GaussianNLLLoss()(x[0], wave({3, 4}, 5), exp(x[1]));
                },
                {{3, 4}, {3, 1}}, {{}, 0.355071655942, -0.285913710409});
  expect_golden("SoftMarginLoss",
                [](const std::vector<Tensor>& x) {
                  return SoftMarginLoss()(x[0], signs({3, 4}));
                },
                {{3, 4}}, {{}, 0.311952908285, 0.11823598632});
  expect_golden(
      "HingeEmbeddingLoss",
      [](const std::vector<Tensor>& x) {
        return HingeEmbeddingLoss({.margin = 0.6, .reduction = "none"})(x[0], signs({3, 4}));
      },
      {{3, 4}}, {{3, 4}, -2.29017630302, 1.90776232531});
  expect_golden("MarginRankingLoss",
                [](const std::vector<Tensor>& x) {
                  return MarginRankingLoss({.margin = 0.3})(x[0], x[1], signs({5}));
                },
                {{5}, {5}}, {{}, 0.341061845601, -0.0681748547441});
  expect_golden("CosineEmbeddingLoss",
                [](const std::vector<Tensor>& x) {
                  return CosineEmbeddingLoss({.margin = -0.5})(x[0], x[1], signs({5}));
                },
                {{5, 4}, {5, 4}}, {{}, 0.316650506843, -0.00590269223458});
  expect_golden("TripletMarginLoss",
                [](const std::vector<Tensor>& x) {
                  return TripletMarginLoss({.margin = 2, .swap = true})(x[0], x[1], x[2]);
                },
                {{5, 4}, {5, 4}, {5, 4}}, {{}, 1.216249041, 0.038102843159});
  expect_golden("TripletMarginWithDistanceLoss",
                [](const std::vector<Tensor>& x) {
                  return TripletMarginWithDistanceLoss({.margin = 2, .swap = true})(x[0], x[1],
                                                                                    x[2]);
                },
                {{5, 4}, {5, 4}, {5, 4}}, {{}, 1.216249041, 0.038102843159});
  expect_golden(
      "TripletMarginWithDistanceLoss of a function",
      [](const std::vector<Tensor>& x) {
        const auto largest = [](const Tensor& a, const Tensor& b) { return abs(a - b).amax(-1); };
        return F::triplet_margin_with_distance_loss(
            x[0], x[1], x[2], {.distance_function = largest, .margin = 0.5, .reduction = "none"});
      },
      {{5, 4}, {5, 4}, {5, 4}}, {{5}, -0.0229672301643, -0.0895571401629});
  expect_golden("MultiMarginLoss",
                [](const std::vector<Tensor>& x) {
                  return MultiMarginLoss({.p = 2, .weight = abs(wave({4}, 1))})(
                      x[0], tensor(std::vector<int64_t>{1, 3, 0}));
                },
                {{3, 4}}, {{}, 0.725014984521, -0.437596369396});
  expect_golden(
      "MultiLabelMarginLoss",
      [](const std::vector<Tensor>& x) {
        const Tensor labels =
            tensor(std::vector<int64_t>{1, 3, -1, 0, 2, -1, 2, 2, -1, 1, 1, 1}).view({3, 4});
        return MultiLabelMarginLoss()(x[0], labels);
      },
      {{3, 4}}, {{}, 0.311853120679, -0.0151742787913});
  expect_golden("MultiLabelSoftMarginLoss",
                [](const std::vector<Tensor>& x) {
                  const Tensor labels = gt(wave({3, 4}, 7), 0).to(kFloat64);
                  return MultiLabelSoftMarginLoss({.weight = abs(wave({4}, 1))})(x[0], labels);
                },
                {{3, 4}}, {{}, 0.235444724161, 0.0789068731297});
}

// Joins the elements of the output and of the last states.
Tensor joined(const std::tuple<Tensor, Tensor>& result) {
  return cat({std::get<0>(result).flatten(), std::get<1>(result).flatten()});
}

Tensor joined(const std::tuple<Tensor, LSTM::State>& result) {
  const auto& [hidden, cell] = std::get<1>(result);
  return cat({std::get<0>(result).flatten(), hidden.flatten(), cell.flatten()});
}

TEST(Golden, RecurrentLayersAgreeWithPyTorch) {
  using Inputs = std::vector<Tensor>;
  RNN rnn = filled_module(RNN(3, 4, {.nonlinearity = "relu"}));
  expect_golden("RNN", [&](const Inputs& x) { return joined(rnn(x[0])); }, {{5, 2, 3}},
                {{48}, 2.39251066312, -4.28337577258});
  RNN both = filled_module(RNN(3, 4, {.num_layers = 2, .bias = false, .bidirectional = true}));
  expect_golden("RNN bidirectional", [&](const Inputs& x) { return joined(both(x[0], x[1])); },
                {{5, 2, 3}, {4, 2, 4}}, {{112}, 2.57197584123, 0.948530665068});
  GRU gru = filled_module(GRU(3, 4, {.num_layers = 2, .batch_first = true}));
  expect_golden("GRU", [&](const Inputs& x) { return joined(gru(x[0], x[1])); },
                {{2, 5, 3}, {2, 2, 4}}, {{56}, 0.527742231395, -1.32057592301});
  GRU one = filled_module(GRU(3, 4, {.bidirectional = true}));
  expect_golden("GRU unbatched", [&](const Inputs& x) { return joined(one(x[0])); }, {{5, 3}},
                {{48}, -2.22669820299, -1.22612439109});
  LSTM lstm = filled_module(LSTM(3, 4, {.num_layers = 2, .bidirectional = true}));
  expect_golden("LSTM",
                [&](const Inputs& x) {
                  return joined(lstm(x[0], {x[1], x[2]}));
                },
                {{5, 2, 3}, {4, 2, 4}, {4, 2, 4}}, {{144}, 0.254607341546, 0.507953159436});
  LSTM small = filled_module(LSTM(3, 4, {.num_layers = 2, .batch_first = true, .proj_size = 2}));
  expect_golden("LSTM projected", [&](const Inputs& x) { return joined(small(x[0])); }, {{2, 5, 3}},
                {{44}, -0.201635793056, -0.249347140472});
  EXPECT_EQ(small.named_parameters()[9].first, "weight_hr_l1");
  EXPECT_EQ(both.named_parameters()[3].first, "weight_hh_l0_reverse");
  EXPECT_EQ(small.describe(), "LSTM(3, 4, num_layers=2, batch_first=true, proj_size=2)");
  expect_error(ErrorCode::kShape, {"[LSTM]", "hidden", "(4, 2, 4)"}, [&] {
    lstm(wave({5, 2, 3}, 0), {wave({4, 1, 4}, 0), Tensor()});
  });
  expect_error(ErrorCode::kShape, {"[RNN]", "(5, 2)"}, [&] { rnn(wave({5, 2}, 0)); });
  expect_error(ErrorCode::kValue, {"[LSTM]", "proj_size"}, [] { LSTM(3, 4, {.proj_size = 4}); });
}

TEST(Golden, AttentionAgreesWithPyTorch) {
  using Inputs = std::vector<Tensor>;
  const Tensor later = triu(ones({5, 5}, kBool), 1);
  const Tensor padding = tensor({0, 0, 0, 0, 0, 0, 0, 0, 1, 1}).view({2, 5}).to(kBool);
  MultiheadAttention attention = filled_module(MultiheadAttention(8, 2));
  const auto masked = [&](const AttentionMasks& masks) {
    return
        [&attention, masks](const Inputs& x) { return joined(attention(x[0], x[0], x[0], masks)); };
  };
  const Expected both{{130}, -106.567177931, 103.651401786};
  expect_golden("self", masked({.key_padding_mask = padding, .attn_mask = later}), {{5, 2, 8}},
                both);
  expect_golden("causal", masked({.key_padding_mask = padding, .is_causal = true}), {{5, 2, 8}},
                both);
  expect_golden("cross",
                [&](const Inputs& x) {
                  return joined(attention(x[0], x[1], x[2], {.average_attn_weights = false}));
                },
                {{3, 2, 8}, {5, 2, 8}, {5, 2, 8}}, {{108}, -339.39888007, 350.546912972});
  expect_golden("unbatched",
                [&](const Inputs& x) {
                  return std::get<0>(attention(
                      x[0], x[0], x[0], {.attn_mask = wave({5, 5}, 4), .need_weights = false}));
                },
                {{5, 8}}, {{5, 8}, -76.8155432054, 146.184275705});
  TransformerEncoderLayer layer = filled_module(TransformerEncoderLayer(8, 2,
                                                                        {.dim_feedforward = 16,
                                                                         .dropout = 0,
                                                                         .activation = "gelu",
                                                                         .batch_first = true,
                                                                         .norm_first = true}));
  const Expected pre{{2, 5, 8}, -21.0123173699, 6.39022377913};
  expect_golden(
      "mask", [&](const Inputs& x) { return layer(x[0], {.attn_mask = later}); }, {{2, 5, 8}}, pre);
  expect_golden(
      "is_causal", [&](const Inputs& x) { return layer(x[0], {.is_causal = true}); }, {{2, 5, 8}},
      pre);
  const TransformerEncoderLayer post(8, 2, {.dim_feedforward = 16, .dropout = 0});
  TransformerEncoder encoder = filled_module(TransformerEncoder(post, 2, LayerNorm(8)));
  expect_golden("encoder",
                [&](const Inputs& x) { return encoder(x[0], {.key_padding_mask = padding}); },
                {{5, 2, 8}}, {{5, 2, 8}, -0.628900568865, -2.47845113295e-05});
  EXPECT_EQ(encoder.named_parameters()[0].first, "layers.0.self_attn.in_proj_weight");
  EXPECT_EQ(encoder.named_parameters().back().first, "norm.bias");
  TransformerEncoder other = clone(encoder);
  {
    NoGradGuard no_grad;
    for (const Tensor& parameter : encoder.parameters()) parameter.fill_(0);
  }
  EXPECT_NE(values(other(wave({5, 1, 8}, 0)))[0], 0);
  expect_error(ErrorCode::kShape, {"[MultiheadAttention]", "attn_mask", "(4, 4)", "(5, 5)"}, [&] {
    attention(wave({5, 8}, 0), wave({5, 8}, 0), wave({5, 8}, 0), {.attn_mask = wave({4, 4}, 0)});
  });
  expect_error(ErrorCode::kValue, {"[MultiheadAttention]", "3 heads"},
               [] { MultiheadAttention(8, 3); });
}

// The values of both results, as one vector.
Tensor both(const std::tuple<Tensor, Tensor>& results) {
  return cat({std::get<0>(results).flatten(), std::get<1>(results).flatten()});
}

std::string keys(const Module& module) {
  std::string names;
  for (const auto& item : module.named_parameters()) names += item.first + " ";
  return names;
}

TEST(Golden, AttentionAsAFunctionIsTheModulesForward) {
  const Tensor x = wave({5, 2, 8}, 0),
               padding = tensor({{0, 0, 0, 0, 0}, {0, 0, 0, 1, 1}}).to(kBool);
  MultiheadAttention module =
      filled_module(MultiheadAttention(8, 2, {.add_bias_kv = true, .add_zero_attn = true}));
  const auto expected = module(x, x, x, {.key_padding_mask = padding});
  const functional::MultiheadAttentionForwardArgs args{.embed_dim_to_check = 8,
                                                       .num_heads = 2,
                                                       .in_proj_weight = module.in_proj_weight,
                                                       .in_proj_bias = module.in_proj_bias,
                                                       .bias_k = module.bias_k,
                                                       .bias_v = module.bias_v,
                                                       .add_zero_attn = true,
                                                       .out_proj_weight = module.out_proj.weight,
                                                       .out_proj_bias = module.out_proj.bias,
                                                       .key_padding_mask = padding};
  EXPECT_TRUE(both(functional::multi_head_attention_forward(x, x, x, args)).equal(both(expected)));
  // libtorch's builder, separate weights, and keys and values that are projected already.
  const std::vector<Tensor> w = module.in_proj_weight.chunk(3), b = module.in_proj_bias.chunk(3);
  const auto heads = [&](size_t part) {
    return linear(x, w[part], b[part]).view({5, 4, 4}).transpose(0, 1);
  };
  const auto built = functional::multi_head_attention_forward(
      x, x, x,
      functional::MultiheadAttentionForwardFuncOptions(8, 2, {}, module.in_proj_bias, module.bias_k,
                                                       module.bias_v, true, 0.5,
                                                       module.out_proj.weight, module.out_proj.bias)
          .training(false)
          .key_padding_mask(padding)
          .use_separate_proj_weight(true)
          .q_proj_weight(w[0])
          .k_proj_weight(w[1])
          .v_proj_weight(w[2])
          .static_k(heads(1))
          .static_v(heads(2)));
  EXPECT_TRUE(allclose(both(built), both(expected), 1e-5, 1e-5));
  const auto refused = [&](std::initializer_list<std::string> words,
                           const functional::MultiheadAttentionForwardArgs& options) {
    expect_error(ErrorCode::kValue, words,
                 [&] { functional::multi_head_attention_forward(x, x, x, options); });
  };
  refused({"[multi_head_attention_forward]", "in_proj_weight is undefined"}, {.num_heads = 2});
  refused({"3 heads"}, {.num_heads = 3, .in_proj_weight = module.in_proj_weight});
  refused({"0", "at least 1"}, {.num_heads = 0, .in_proj_weight = module.in_proj_weight});
  refused({"out_proj_weight"}, {.num_heads = 2, .in_proj_weight = module.in_proj_weight});
  refused({"bias_k"},
          {.num_heads = 2, .in_proj_weight = module.in_proj_weight, .bias_k = module.bias_k});
  expect_error(ErrorCode::kShape, {"static_k", "(4, S, 4)", "(5, 2, 8)"}, [&] {
    functional::multi_head_attention_forward(
        x, x, x, {.num_heads = 2, .in_proj_weight = module.in_proj_weight, .static_k = x});
  });
}

TEST(Golden, AttentionWithOtherWidthsAndAppendedKeys) {
  using Inputs = std::vector<Tensor>;
  const Tensor later = triu(ones({5, 5}, kBool), 1);
  const Tensor padding = tensor({{0, 0, 0, 0, 0}, {0, 0, 0, 1, 1}}).to(kBool);
  MultiheadAttention wide = filled_module(
      MultiheadAttention(8, 2, {.add_bias_kv = true, .add_zero_attn = true, .kdim = 6, .vdim = 4}));
  EXPECT_EQ(keys(wide),
            "q_proj_weight k_proj_weight v_proj_weight in_proj_bias bias_k bias_v out_proj.weight "
            "out_proj.bias ");
  expect_golden("kdim and vdim", [&](const Inputs& x) { return both(wide(x[0], x[1], x[2])); },
                {{3, 2, 8}, {5, 2, 6}, {5, 2, 4}}, {{90}, -5.45066918197, 11.7477224397});
  MultiheadAttention plain =
      filled_module(MultiheadAttention(8, 2, {.bias = false, .kdim = 6, .batch_first = true}));
  EXPECT_EQ(keys(plain), "q_proj_weight k_proj_weight v_proj_weight out_proj.weight ");
  expect_golden("without bias",
                [&](const Inputs& x) {
                  return both(plain(x[0], x[1], x[2], {.average_attn_weights = false}));
                },
                {{2, 3, 8}, {2, 5, 6}, {2, 5, 8}}, {{108}, 140.184733645, -130.89854175});
  MultiheadAttention more =
      filled_module(MultiheadAttention(8, 2, {.add_bias_kv = true, .add_zero_attn = true}));
  EXPECT_EQ(keys(more), "in_proj_weight in_proj_bias bias_k bias_v out_proj.weight out_proj.bias ");
  expect_golden(
      "appended keys and masks",
      [&](const Inputs& x) {
        return std::get<0>(more(
            x[0], x[0], x[0],
            {.key_padding_mask = padding, .attn_mask = wave({4, 5, 5}, 4), .need_weights = false}));
      },
      {{5, 2, 8}}, {{5, 2, 8}, 387.061378774, -351.081374315});
  const Expected weights{{150}, 370.297948666, -345.900759476};
  expect_golden(
      "appended keys, weights",
      [&](const Inputs& x) { return both(more(x[0], x[0], x[0], padding, true, later)); },
      {{5, 2, 8}}, weights);
  expect_golden(
      "appended keys, is_causal",
      [&](const Inputs& x) {
        return both(more(x[0], x[0], x[0], {.key_padding_mask = padding, .is_causal = true}));
      },
      {{5, 2, 8}}, weights);
  expect_golden("unbatched",
                [&](const Inputs& x) {
                  return both(more(x[0], x[1], x[1], {.key_padding_mask = padding[1]}));
                },
                {{3, 8}, {5, 8}}, {{45}, 136.523090782, -131.113553466});
  expect_error(ErrorCode::kShape, {"key (5, 2, 8)", "(S, N, 6)", "(S, N, 4)"}, [&] {
    wide(wave({3, 2, 8}, 0), wave({5, 2, 8}, 0), wave({5, 2, 4}, 0));
  });
  expect_error(ErrorCode::kValue, {"kdim is 0"}, [] { MultiheadAttention(8, 2, {.kdim = 0}); });
}

TEST(Golden, Decoders) {
  using Inputs = std::vector<Tensor>;
  const Tensor later = triu(ones({5, 5}, kBool), 1);
  DecoderMasks masks{.tgt_mask = later};
  masks.memory_mask = tensor({{0, 0, 1}, {0, 0, 0}, {1, 0, 0}, {0, 0, 0}, {0, 0, 0}}).to(kBool);
  masks.tgt_key_padding_mask = tensor({{0, 0, 0, 0, 0}, {0, 0, 0, 1, 1}}).to(kBool);
  masks.memory_key_padding_mask = tensor({{0, 1, 0}, {0, 0, 0}}).to(kBool);
  const std::vector<Shape> shapes{{5, 2, 8}, {3, 2, 8}};
  TransformerDecoderLayerArgs options{.dim_feedforward = 16, .dropout = 0, .layer_norm_eps = 1e-3};
  const auto expect_layer = [&](const char* name, const Expected& expected) {
    TransformerDecoderLayer layer = filled_module(TransformerDecoderLayer(8, 2, options));
    expect_golden(
        name, [&](const Inputs& x) { return layer(x[0], x[1], masks); }, shapes, expected);
    expect_golden(
        name,
        [&](const Inputs& x) {
          return layer(x[0], x[1], masks.tgt_mask, masks.memory_mask, masks.tgt_key_padding_mask,
                       masks.memory_key_padding_mask);
        },
        shapes, expected);
    masks.tgt_is_causal = true;
    expect_golden(
        name, [&](const Inputs& x) { return layer(x[0], x[1], masks); }, shapes, expected);
    masks.tgt_is_causal = false;
  };
  expect_layer("relu", {{5, 2, 8}, -0.546392726941, -2.01248540466});
  options.activation = [](const Tensor& x) { return x * x.sigmoid(); };
  expect_layer("a function", {{5, 2, 8}, -0.599733032793, -2.27049011035});
  options.activation = "gelu";
  options.norm_first = true;
  expect_layer("norms first", {{5, 2, 8}, 65.8914732149, -53.1758123859});
  const TransformerDecoderLayer layer(
      8, 2, {.dim_feedforward = 16, .dropout = 0, .batch_first = true, .bias = false});
  TransformerDecoder decoder = filled_module(TransformerDecoder(layer, 2, LayerNorm(8)));
  EXPECT_EQ(keys(decoder),
            "layers.0.self_attn.in_proj_weight layers.0.self_attn.out_proj.weight "
            "layers.0.multihead_attn.in_proj_weight layers.0.multihead_attn.out_proj.weight "
            "layers.0.linear1.weight layers.0.linear2.weight layers.0.norm1.weight "
            "layers.0.norm2.weight layers.0.norm3.weight "
            "layers.1.self_attn.in_proj_weight layers.1.self_attn.out_proj.weight "
            "layers.1.multihead_attn.in_proj_weight layers.1.multihead_attn.out_proj.weight "
            "layers.1.linear1.weight layers.1.linear2.weight layers.1.norm1.weight "
            "layers.1.norm2.weight layers.1.norm3.weight norm.weight norm.bias ");
  expect_golden("decoder",
                [&](const Inputs& x) { return decoder(x[0], x[1], {.tgt_is_causal = true}); },
                {{2, 5, 8}, {2, 3, 8}}, {{2, 5, 8}, -8.71916846316, 5.52853128181});
}

TEST(Golden, Transformers) {
  using Inputs = std::vector<Tensor>;
  TransformerMasks masks;
  masks.src_mask = tensor({{0, 0, 1}, {0, 0, 0}, {0, 0, 0}}).to(kBool);
  masks.tgt_mask = Transformer::generate_square_subsequent_mask(5, kCPU, kFloat64);
  masks.memory_mask =
      tensor({{0., 0., 0.}, {0., 0.5, 0.}, {0., 0., 0.}, {0., 0., 0.}, {0., 0., 0.}}, kFloat64);
  masks.src_key_padding_mask = tensor({{0, 1, 0}, {0, 0, 0}}).to(kBool);
  masks.tgt_key_padding_mask = tensor({{0, 0, 0, 0, 0}, {0, 0, 0, 1, 1}}).to(kBool);
  masks.memory_key_padding_mask = masks.src_key_padding_mask;
  TransformerArgs options{.num_encoder_layers = 2,
                          .num_decoder_layers = 1,
                          .dim_feedforward = 16,
                          .dropout = 0,
                          .activation = "gelu"};
  Transformer model = filled_module(Transformer(8, 2, options));
  const std::string names = keys(model);
  EXPECT_EQ(names.substr(0, 33), "encoder.layers.0.self_attn.in_pro");
  EXPECT_NE(names.find(" encoder.norm.weight encoder.norm.bias decoder.layers.0.self_attn."),
            std::string::npos);
  EXPECT_EQ(model.state_dict().size(), 46u);
  expect_golden("transformer", [&](const Inputs& x) { return model(x[0], x[1], masks); },
                {{3, 2, 8}, {5, 2, 8}}, {{5, 2, 8}, 1.78618970446, -0.029748749003});
  options.norm_first = options.batch_first = true;
  model = filled_module(Transformer(8, 2, options));
  expect_golden("norms and batch first",
                [&](const Inputs& x) {
                  return model(x[0], x[1], masks.src_mask, masks.tgt_mask, masks.memory_mask,
                               masks.src_key_padding_mask, masks.tgt_key_padding_mask,
                               masks.memory_key_padding_mask);
                },
                {{2, 3, 8}, {2, 5, 8}}, {{2, 5, 8}, 1.18094866304, 0.185072063152});
  expect_golden("unbatched", [&](const Inputs& x) { return model(x[0], x[1]); }, {{3, 8}, {5, 8}},
                {{5, 8}, 13.8609410657, 0.117368964362});
  expect_error(ErrorCode::kShape, {"[Transformer]", "(2, 3, 8)", "(3, 5, 8)", "(N, S, E)"}, [&] {
    model(wave({2, 3, 8}, 0), wave({3, 5, 8}, 0));
  });
  // Custom parts are used as they are.
  const TransformerEncoder encoder(TransformerEncoderLayer(8, 2), 3);
  const TransformerDecoder decoder(TransformerDecoderLayer(8, 2), 1);
  const Transformer custom(8, 2, {.custom_encoder = encoder, .custom_decoder = decoder});
  EXPECT_EQ(custom.encoder.layers.size(), 3u);
  EXPECT_EQ(custom.state_dict().count("encoder.norm.weight"), 0u);
  EXPECT_EQ(Transformer().encoder.layers.size(), 6u);
}

TEST(Golden, TransformersDropInTrainingOnly) {
  Transformer model(8, 2,
                    {.num_encoder_layers = 1, .num_decoder_layers = 1, .dim_feedforward = 16});
  const Tensor src = ones({3, 2, 8}), tgt = ones({5, 2, 8});
  EXPECT_NE(values(model(src, tgt)), values(model(src, tgt)));
  model.eval();
  EXPECT_EQ(values(model(src, tgt)), values(model(src, tgt)));
}

TEST(Golden, BuildersOfTransformersEqualDesignatedInitializers) {
  const auto same = [](const Module& a, const Module& b) { EXPECT_EQ(a.str(), b.str()); };
  same(MultiheadAttention(MultiheadAttentionOptions(8, 2).kdim(6).add_bias_kv(true).dropout(0.1)),
       MultiheadAttention(8, 2, {.dropout = 0.1, .add_bias_kv = true, .kdim = 6}));
  const auto layer = TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).activation("gelu");
  same(TransformerEncoder(TransformerEncoderOptions(layer, 2).norm(LayerNorm(8))),
       TransformerEncoder(TransformerEncoderLayer(layer), 2, LayerNorm(8)));
  same(
      Transformer(TransformerOptions(8, 2, 1, 3).dim_feedforward(16)),
      Transformer(8, 2, {.num_encoder_layers = 1, .num_decoder_layers = 3, .dim_feedforward = 16}));
  expect_error(ErrorCode::kValue, {"tanh", "relu", "gelu"},
               [] { TransformerDecoderLayer(8, 2, {.activation = "tanh"}); });
}

}  // namespace
}  // namespace mytorch::nn
