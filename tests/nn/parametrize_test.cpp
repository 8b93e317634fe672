// Parametrized parameters, with the values of PyTorch 2.
#include "mytorch/nn/parametrize.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/nn/conv.h"
#include "mytorch/nn/functional.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/optim/sgd.h"
#include "mytorch/nn/recurrent.h"
#include "mytorch/nn/summary.h"
#include "mytorch/ops/equal.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/triu.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/temp_directory.h"
#include "tests/nn/golden.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using utils::remove_spectral_norm;
using utils::remove_weight_norm;
using utils::spectral_norm;
using utils::weight_norm;
using utils::parametrize::is_parametrized;
using utils::parametrize::Parametrization;
using utils::parametrize::register_parametrization;
using utils::parametrize::remove_parametrizations;
using Names = std::vector<std::string>;

const std::vector<double> kOutput = {-0.2209234, 0.26464146, 2.95847086, -1.29808435};

TEST(WeightNorm, EqualsPyTorch) {
  Linear fc = filled_module(Linear(3, 2));
  weight_norm(fc);
  EXPECT_EQ(fc.named_parameters().keys(), (Names{"bias", "parametrizations.weight.original0",
                                                 "parametrizations.weight.original1"}));
  const Tensor y = fc(wave({2, 3}, 5));
  expect_values(y, kOutput);
  (y * wave({2, 2}, 2)).sum().backward();
  const auto parameters = fc.parameters();
  EXPECT_EQ(parameters[1].sizes(), (IntList{2, 1}));
  expect_values(parameters[1], {1.47812546, 1.28392607});
  expect_values(parameters[1].grad(), {-0.79894727, 0.82078741});
  expect_values(parameters[2].grad(),
                {-0.4624723, 0.15424368, 0.31035983, -0.7140304, -0.21954349, 0.03271313});
}

TEST(WeightNorm, TakesAnyDimensionOrTheWholeParameter) {
  ConvTranspose1d conv = weight_norm(filled_module(ConvTranspose1d(2, 3, 2)), "weight", 1);
  EXPECT_EQ(conv.named_parameters()["parametrizations.weight.original0"].sizes(),
            (IntList{1, 3, 1}));
  Linear fc = weight_norm(filled_module(Linear(3, 2)), "weight", -1);
  EXPECT_EQ(fc.named_parameters()["parametrizations.weight.original0"].dim(), 0);
  expect_values(fc.named_parameters()["parametrizations.weight.original0"], {1.95788688});
  Linear bias = weight_norm(filled_module(Linear(3, 2)), "bias");
  expect_values(bias->bias, values(wave({2}, 2)));
  expect_error(ErrorCode::kValue, {"[weight_norm]", "(2, 3)", "0 to 1"},
               [] { weight_norm(Linear(3, 2), "weight", 2); });
}

TEST(SpectralNorm, EqualsPyTorch) {
  const auto set = [](Module& module) {
    auto buffers = module.named_buffers();
    const auto unit = [](const Tensor& t) { return functional::normalize(t, {.dim = 0}); };
    for (const auto& [name, phase] : {std::pair("_u", 3.0), std::pair("_v", 4.0)}) {
      Tensor& vector = buffers["parametrizations.weight.0." + std::string(name)];
      vector.copy_(unit(wave(vector.sizes().vec(), phase)));
    }
  };
  Linear fc = spectral_norm(filled_module(Linear(3, 2)));
  EXPECT_EQ(fc.state_dict().count("parametrizations.weight.original"), 1u);
  set(fc);
  const Tensor y = fc(wave({2, 3}, 5));
  const std::vector<double> expected = {0.28375264, 0.21659868, 2.04345611, -0.64832521};
  expect_values(y, expected);
  expect_values(fc.buffers()[0], {-0.83203343, 0.55472549});
  (y * wave({2, 2}, 2)).sum().backward();
  expect_values(fc.named_parameters()["parametrizations.weight.original"].grad(),
                {-0.4971866, -0.16687638, -0.04557586, -0.3295543, -0.42356546, -0.34039189});
  fc.eval();
  expect_values(fc(wave({2, 3}, 5)), expected);
  expect_values(fc.buffers()[0], {-0.83203343, 0.55472549});

  ConvTranspose1d conv = spectral_norm(filled_module(ConvTranspose1d(2, 3, 2)));
  set(conv);
  conv(wave({1, 2, 3}, 5)).mul(wave({1, 3, 4}, 2)).sum().backward();
  expect_values(conv.buffers()[0], {-0.36814676, -0.86871995, 0.33135118});
  expect_values(conv.named_parameters()["parametrizations.weight.original"].grad(),
                {-0.91608397, -0.2766645, -0.1023999, -0.06447549, -0.48766179, -0.438538,
                 0.48385167, -0.44596408, -0.78333026, -0.34639262, 1.0979404, 0.42726891});
}

TEST(SpectralNorm, OfAVectorIsItsNorm) {
  LayerNorm norm = spectral_norm(filled_module(LayerNorm(3)));
  expect_values(norm->weight, {0.56928252, 0.61962484, 0.54035402});
  EXPECT_EQ(norm.buffers().size(), 0u);
}

// As in a GAN: both forwards precede the backward.
TEST(SpectralNorm, TakesTwoForwardsBeforeABackward) {
  Linear fc = spectral_norm(Linear(3, 2), "weight", {.n_power_iterations = 2});
  (fc(ones({1, 3})) - fc(zeros({1, 3}))).sum().backward();
  EXPECT_TRUE(fc.parameters()[1].grad().defined());
  expect_error(ErrorCode::kValue, {"n_power_iterations is 0"},
               [] { spectral_norm(Linear(3, 2), "weight", {.n_power_iterations = 0}); });
}

struct WeightNormNet : Module {
  Linear first = register_module("first", weight_norm(Linear(3, 4)));
  Linear last{4, 2};
  WeightNormNet() {
    register_module("last", last);
    spectral_norm(last);
  }
  Tensor forward(const Tensor& x) override { return last->forward(first(x)); }
};

TEST(Parametrized, ModulesTrain) {
  WeightNormNet net;
  EXPECT_EQ(net.named_parameters().keys(),
            (Names{"first.bias", "first.parametrizations.weight.original0",
                   "first.parametrizations.weight.original1", "last.bias",
                   "last.parametrizations.weight.original"}));
  optim::SGD sgd(net.parameters(), {.lr = 0.05});
  const Tensor x = ones({8, 3});
  double before = 0, loss = 0;
  for (int i = 0; i < 20; ++i) {
    sgd.zero_grad();
    const Tensor error = net(x).square().mean();
    error.backward();
    sgd.step();
    loss = error.item<double>();
    if (i == 0) before = loss;
  }
  EXPECT_LT(loss, 0.5 * before);
  EXPECT_TRUE(equal(net.first->weight, net.first.weight));
}

TEST(Parametrized, TheArrowAndTheBaseComputeTheMember) {
  Linear fc = weight_norm(Linear(3, 2));
  const Tensor g = fc.named_parameters()["parametrizations.weight.original0"];
  const Tensor before = fc.weight;
  {
    NoGradGuard no_grad;
    g.mul_(2);
  }
  EXPECT_TRUE(equal(fc.weight, before));  // of the last call
  EXPECT_TRUE(equal(fc->weight, before * 2));
  {
    NoGradGuard no_grad;
    g.mul_(2);
  }
  Module& base = fc;
  const Tensor y = base.forward(ones({1, 3}));
  EXPECT_TRUE(equal(fc.weight, before * 4));
  EXPECT_TRUE(y.requires_grad());
}

TEST(Parametrized, CopiesShareAndClonesOwnTheOriginals) {
  WeightNormNet net;
  WeightNormNet copy = net, other = clone(net);
  const Tensor x = ones({1, 3});
  net.eval();
  copy.eval();
  other.eval();
  EXPECT_TRUE(equal(net(x), copy(x)));
  EXPECT_TRUE(equal(net(x), other(x)));
  {
    NoGradGuard no_grad;
    for (const Tensor& parameter : net.parameters()) parameter.mul_(3);
  }
  EXPECT_TRUE(equal(net(x), copy(x)));
  EXPECT_FALSE(equal(net(x), other(x)));
  EXPECT_TRUE(other.first.weight.requires_grad());
  other(x).sum().backward();
  EXPECT_TRUE(other.parameters()[1].grad().defined());
  EXPECT_FALSE(net.parameters()[1].grad().defined());
}

TEST(Parametrized, StateIsSavedLoadedAndConverted) {
  const mytorch::testing::TempDirectory folder;
  WeightNormNet net, other;
  net.save(folder.file("net.safetensors"));
  other.load(folder.file("net.safetensors"));
  net.eval();
  other.eval();
  EXPECT_TRUE(equal(net(ones({1, 3})), other(ones({1, 3}))));
  net.to(kFloat64);
  EXPECT_EQ(net.first.weight.dtype(), kFloat64);
  EXPECT_EQ(net(ones({1, 3}, kFloat64)).dtype(), kFloat64);
  EXPECT_EQ(net.buffers()[0].dtype(), kFloat64);
}

TEST(Parametrized, StateOfEarlierNormsIsLoaded) {
  Linear fc = weight_norm(Linear(1, 1));
  fc.load_state_dict({{"bias", filled({1}, {0})},
                      {"weight_g", filled({1, 1}, {3})},
                      {"weight_v", filled({1, 1}, {-2})}});
  expect_values(fc(ones({1, 1})), {-3});
  Sequential net(spectral_norm(Linear(1, 1, false)));
  net.load_state_dict({{"0.weight_orig", filled({1, 1}, {4})},
                       {"0.weight_u", filled({1}, {1})},
                       {"0.weight_v", filled({1}, {1})}});
  expect_values(net(ones({1, 1})), {1});
}

TEST(Parametrized, RemovalLeavesTheValue) {
  WeightNormNet net;
  net.eval();
  const Tensor before = net(ones({1, 3}));
  remove_weight_norm(net.first);
  remove_spectral_norm(net.last);
  EXPECT_EQ(net.named_parameters().keys(),
            (Names{"first.weight", "first.bias", "last.weight", "last.bias"}));
  EXPECT_TRUE(net.first.weight.is_leaf() && net.first.weight.requires_grad());
  EXPECT_TRUE(net.named_parameters()["first.weight"].is_same(net.first.weight));
  expect_values(net(ones({1, 3})), values(before));
  EXPECT_EQ(net.buffers().size(), 0u);
  EXPECT_EQ(net.first.str(), Linear(3, 4).str());
  expect_error(ErrorCode::kValue, {"[remove_weight_norm]", "'weight'", "Linear"},
               [&] { remove_weight_norm(net.first); });
  Linear fc = spectral_norm(Linear(2, 2));
  const Tensor original = fc.named_parameters()["parametrizations.weight.original"];
  const std::vector<double> kept = values(original);
  expect_error(ErrorCode::kValue, {"[remove_weight_norm]"}, [&] { remove_weight_norm(fc); });
  remove_parametrizations(fc, "weight", false);
  EXPECT_TRUE(fc.weight.is_same(original));
  EXPECT_EQ(values(fc.weight), kept);
  weight_norm(fc);
  expect_error(ErrorCode::kValue, {"several originals", "leave_parametrized"},
               [&] { remove_parametrizations(fc, "weight", false); });
}

TEST(Parametrized, RemovalFromACopyLeavesTheOther) {
  Linear fc = weight_norm(weight_norm(Linear(3, 2)), "bias");
  Linear copy = fc;
  remove_weight_norm(copy, "bias");
  EXPECT_FALSE(is_parametrized(copy, "bias"));
  EXPECT_TRUE(is_parametrized(copy, "weight") && is_parametrized(fc, "bias"));
  EXPECT_EQ(fc.parameters().size(), 4u);
  EXPECT_EQ(copy.parameters().size(), 3u);
  remove_weight_norm(copy);
  EXPECT_FALSE(is_parametrized(copy));
  EXPECT_TRUE(equal(fc(ones({1, 3})), copy(ones({1, 3}))));
}

// exp(x): the original is the logarithm.
class Positive final : public Layer<Positive, Parametrization> {
 public:
  using Layer::Layer;
  Positive() = default;
  Tensor compute(const std::vector<Tensor>& originals) override { return originals[0].exp(); }
  std::vector<Tensor> right_inverse(const Tensor& value) override { return {value.log()}; }
};

struct Scaled : Module {
  Tensor scale = register_parameter("scale", tensor({1.0, 4.0}));
  Tensor forward(const Tensor& x) override { return x * scale; }
};

TEST(Parametrized, ByAModuleOrAFunction) {
  Scaled scaled;
  const Tensor parameter = scaled.scale;
  register_parametrization(scaled, "scale", Positive());
  expect_values(scaled(ones({2})), {1, 4});
  EXPECT_TRUE(scaled.parameters()[0].is_same(parameter));  // optimizers go on training it
  expect_values(parameter, {0, std::log(4.0)});
  register_parametrization(scaled, "scale", [](const Tensor& x) { return x * 2; });
  expect_values(scaled(ones({2})), {2, 8});
  EXPECT_TRUE(scaled.scale.requires_grad());
  remove_parametrizations(scaled, "scale");
  expect_values(scaled(ones({2})), {2, 8});
  EXPECT_TRUE(scaled.scale.is_same(parameter));

  Linear symmetric =
      register_parametrization(Linear(2, 2), "weight", [](const Tensor& x) { return x + x.t(); });
  EXPECT_TRUE(equal(symmetric->weight, symmetric->weight.t()));
}

TEST(Parametrized, WeightsOfRecurrentLayersAre) {
  LSTM lstm(3, 4);
  const auto [before, state] = lstm(ones({2, 1, 3}));
  weight_norm(lstm, "weight_hh_l0");
  EXPECT_EQ(lstm.parameters().size(), 5u);
  const auto [after, same] = lstm(ones({2, 1, 3}));
  expect_values(after, values(before));
  after.sum().backward();
  EXPECT_TRUE(lstm.named_parameters()["parametrizations.weight_hh_l0.original1"].grad().defined());
}

TEST(Parametrized, MistakesAreExplained) {
  Linear fc(3, 2);
  expect_error(ErrorCode::kValue, {"Linear", "'wieght'", "weight, bias"},
               [&] { weight_norm(fc, "wieght"); });
  expect_error(ErrorCode::kValue, {"first input"}, [] { weight_norm(LazyLinear(2)); });
  expect_error(ErrorCode::kShape, {"'weight'", "(2, 3)", "(3, 2)"}, [&] {
    register_parametrization(fc, "weight", [](const Tensor& x) { return x.t(); });
  });
  Scaled scaled;
  Module& base = scaled;
  expect_error(ErrorCode::kValue, {"'scale'", "its own class"},
               [&] { weight_norm(base, "scale"); });
  EXPECT_FALSE(is_parametrized(fc));
  EXPECT_EQ(fc.parameters().size(), 2u);
  fc(ones({1, 3}));

  // A second one that fails leaves the first.
  weight_norm(fc);
  const Tensor before = fc(ones({1, 3}));
  expect_error(ErrorCode::kValue, {"'weight'", "WeightNorm", "2 tensors"},
               [&] { weight_norm(fc); });
  expect_error(ErrorCode::kShape, {"'weight'", "(2, 3)", "(3, 2)"}, [&] {
    register_parametrization(fc, "weight", [](const Tensor& x) { return x.t(); });
  });
  EXPECT_TRUE(equal(fc(ones({1, 3})), before));
  register_parametrization(fc, "weight", [](const Tensor& x) { return x * 2; });
  EXPECT_TRUE(equal(fc(ones({1, 3})) - fc.bias, (before - fc.bias) * 2));
}

TEST(Parametrized, ModulesArePrintedAndSummarized) {
  Linear fc = weight_norm(Linear(3, 2));
  EXPECT_NE(fc.str().find("(weight): ParametrizationList("), std::string::npos) << fc.str();
  EXPECT_NE(fc.str().find("(0): WeightNorm(dim=0)"), std::string::npos) << fc.str();
  EXPECT_EQ(summary(fc, ones({1, 3})).parameters, 2 + 2 + 6);
}

}  // namespace
}  // namespace mytorch::nn
