// libtorch's spelling of modules and options: `->`, builders, constants, orders of arguments.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "mytorch/linalg.h"
#include "mytorch/nn.h"
#include "mytorch/ops/allclose.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/equal.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/rand.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/special.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

namespace F = functional;
using mytorch::testing::expect_error;
using mytorch::testing::expect_values;

TEST(Arrow, ReachesTheLayerItself) {
  Linear fc(4, 2);
  EXPECT_EQ(fc.operator->(), &fc);
  EXPECT_TRUE(fc->weight.is_same(fc.weight));
  Sequential net(Conv2d(3, 4, 3), BatchNorm2d(4), ReLU(), Dropout(0.0));
  EXPECT_EQ(net->size(), 4u);
  net->eval();
  EXPECT_FALSE(net->is_training());
  EXPECT_FALSE(net[3].training());
  EXPECT_EQ(net->forward(randn({1, 3, 5, 5})).sizes().vec(), (std::vector<int64_t>{1, 4, 3, 3}));
  LSTM lstm(3, 2);
  EXPECT_EQ(std::get<0>(lstm->forward(randn({5, 1, 3}))).size(2), 2);
}

TEST(Arrow, PtrSharesParametersAndCloneCopiesThem) {
  Linear fc(4, 2);
  EXPECT_TRUE(fc.ptr()->weight.is_same(fc.weight));
  const std::shared_ptr<Module> copy = fc->clone();
  ASSERT_NE(copy->as<Linear>(), nullptr);
  EXPECT_FALSE(copy->as<Linear>()->weight.is_same(fc.weight));
  EXPECT_TRUE(equal(copy->as<Linear>()->weight, fc.weight));
  EXPECT_EQ(copy->as<Conv2d>(), nullptr);
}

TEST(Builders, EqualDesignatedInitializers) {
  const auto same = [](const Module& a, const Module& b) { EXPECT_EQ(a.str(), b.str()); };
  same(Linear(LinearOptions(4, 8).bias(false)), Linear(4, 8, {.bias = false}));
  same(Conv2d(Conv2dOptions(3, 6, {3, 5}).stride(2).padding({1, 2}).groups(3).bias(false)),
       Conv2d(3, 6, {3, 5}, {.stride = 2, .padding = {1, 2}, .groups = 3, .bias = false}));
  same(Conv1d(Conv1dOptions(3, 6, 3).padding("same")), Conv1d(3, 6, 3, {.padding = "same"}));
  same(ConvTranspose2d(ConvTranspose2dOptions(3, 6, 4).stride(2).output_padding(1)),
       ConvTranspose2d(3, 6, 4, {.stride = 2, .output_padding = 1}));
  same(BatchNorm1d(BatchNorm1dOptions(4).eps(1e-3).momentum(0.01)),
       BatchNorm1d(4, {.eps = 1e-3, .momentum = 0.01}));
  same(LayerNorm(LayerNormOptions({4, 2}).eps(0.5)), LayerNorm({4, 2}, {.eps = 0.5}));
  same(MaxPool2d(MaxPool2dOptions({3, 2}).stride(2)), MaxPool2d({3, 2}, {.stride = 2}));
  same(AdaptiveAvgPool2d(AdaptiveAvgPool2dOptions({1, 2})), AdaptiveAvgPool2d({1, 2}));
  same(LPPool1d(LPPool1dOptions(2, 3).stride(1)), LPPool1d(2, 3, {.stride = 1}));
  same(LeakyReLU(LeakyReLUOptions().negative_slope(0.2)), LeakyReLU(0.2));
  same(Hardtanh(HardtanhOptions().min_val(-2).max_val(2)), Hardtanh(-2, 2));
  same(Dropout(DropoutOptions(0.25)), Dropout(0.25));
  same(Dropout(DropoutOptions().p(0.25)), Dropout(0.25));
  same(Embedding(EmbeddingOptions(10, 6).padding_idx(0)), Embedding(10, 6, {.padding_idx = 0}));
  same(LSTM(LSTMOptions(10, 6).num_layers(2)), LSTM(10, 6, {.num_layers = 2}));
  same(ConstantPad2d(ConstantPad2dOptions({1, 2, 3, 4}, 5.0)), ConstantPad2d({1, 2, 3, 4}, 5));
  same(Upsample(UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(kBilinear)),
       Upsample({.scale_factor = {2, 2}, .mode = "bilinear"}));
  EXPECT_EQ(std::make_shared<Conv2d>(Conv2dOptions(3, 6, 3))->weight.size(0), 6);
  const auto options = Conv2dOptions(3, 6, 3).stride({1, 2});
  EXPECT_EQ(options.stride()[1], 2);
}

TEST(Builders, AreTheLastArgumentOfFunctions) {
  const Tensor x = randn({2, 3, 6, 6}), w = randn({4, 3, 3, 3}), flat = randn({3, 4});
  const auto same = [](const Tensor& a, const Tensor& b) { EXPECT_TRUE(equal(a, b)); };
  same(F::elu(x, F::ELUFuncOptions().alpha(0.4)), F::elu(x, {.alpha = 0.4}));
  same(F::softmax(flat, F::SoftmaxFuncOptions(0)), F::softmax(flat, 0));
  same(F::glu(flat, F::GLUFuncOptions(1)), F::glu(flat, 1));
  same(F::conv2d(x, w, F::Conv2dFuncOptions().stride(2)), F::conv2d(x, w, {.stride = 2}));
  same(F::max_pool2d(x, F::MaxPool2dFuncOptions(3).stride(1)), F::max_pool2d(x, 3, {.stride = 1}));
  same(F::pad(x, F::PadFuncOptions({1, 1}).mode(kReflect)), F::pad(x, {1, 1}, {.mode = "reflect"}));
  same(F::layer_norm(x, F::LayerNormFuncOptions({6})), F::layer_norm(x, {6}));
  same(F::interpolate(x, F::InterpolateFuncOptions().size(std::vector<int64_t>{3, 3})),
       F::interpolate(x, {.size = {3, 3}}));
  const Tensor grid = rand({2, 4, 5, 2}) * 2 - 1;
  same(F::grid_sample(x, grid, F::GridSampleFuncOptions().mode(kNearest).padding_mode(kBorder)),
       F::grid_sample(x, grid, {.mode = "nearest", .padding_mode = "border"}));
  same(F::mse_loss(x, x + 1, F::MSELossFuncOptions(kSum)), F::mse_loss(x, x + 1, "sum"));
  same(
      F::triplet_margin_loss(flat, flat + 1, flat * 2, F::TripletMarginLossFuncOptions().margin(3)),
      F::triplet_margin_loss(flat, flat + 1, flat * 2, {.margin = 3}));
  const auto distance = [](const Tensor& a, const Tensor& b) { return (a - b).abs().sum(-1); };
  same(F::triplet_margin_with_distance_loss(
           flat, flat + 1, flat * 2,
           F::TripletMarginWithDistanceLossFuncOptions().distance_function(distance).margin(3)),
       F::triplet_margin_loss(flat, flat + 1, flat * 2, {.margin = 3, .p = 1, .eps = 0}));
  same(F::batch_norm(x, zeros({3}), ones({3}), F::BatchNormFuncOptions().eps(1)),
       F::batch_norm(x, zeros({3}), ones({3}), {.eps = 1}));
}

TEST(Inplace, OverwritesTheInput) {
  const auto run = [](auto activation, double expected) {
    const Tensor x = tensor({-1.0f, 2.0f});
    const Tensor y = activation(x);
    EXPECT_TRUE(y.is_same(x)) << activation.str();
    expect_values(x, {expected, 2});
  };
  run(ReLU(ReLUOptions().inplace(true)), 0);
  run(LeakyReLU(LeakyReLUOptions().negative_slope(0.5).inplace(true)), -0.5);
  run(ELU(ELUOptions().alpha(0).inplace(true)), 0);
  run(ReLU6(ReLU6Options().inplace(true)), 0);
  run(Hardtanh(HardtanhOptions().min_val(-0.5).max_val(3).inplace(true)), -0.5);
  run(Threshold(ThresholdOptions(0.5, -7).inplace(true)), -7);
  RReLU random(RReLUOptions().lower(0.25).upper(0.25).inplace(true));
  run(random, -0.25);
  random.eval();
  run(random, -0.25);
  EXPECT_EQ(ReLU(true).str(), "ReLU(inplace=true)");
  const Tensor x = tensor({-1.0f, 2.0f}), kept = ReLU()(x);
  expect_values(x, {-1, 2});
  F::relu(x, F::ReLUFuncOptions().inplace(true));
  expect_values(x, {0, 2});
  Linear fc(2, 2);
  ReLU(true)(fc(x)).sum().backward();
  EXPECT_TRUE(fc.weight.grad().defined());
}

TEST(Inplace, DropoutOverwritesTheInput) {
  const auto run = [](auto drop) {
    const Tensor leaf = ones({4, 6, 3, 3}).requires_grad_();
    const Tensor x = leaf * 3;
    const Tensor y = drop(x);
    EXPECT_TRUE(y.is_same(x)) << drop.str();
    EXPECT_TRUE(((x == 6) || (x == 0)).all().template item<bool>());
    EXPECT_TRUE((x == 0).any().template item<bool>());
    y.sum().backward();
    EXPECT_TRUE(leaf.grad().equal(x.detach()));
    drop.eval();
    EXPECT_TRUE(drop(x).is_same(x));
  };
  manual_seed(0);
  run(Dropout(DropoutOptions(0.5).inplace(true)));
  run(Dropout2d(Dropout2dOptions(0.5).inplace(true)));
  EXPECT_EQ(Dropout(DropoutOptions(0.5).inplace(true)).str(), "Dropout(p=0.5, inplace=true)");
  const Tensor x = ones({100});
  F::alpha_dropout(x, {.p = 0.5, .inplace = true});
  EXPECT_FALSE(x.equal(ones({100})));
}

TEST(Inplace, GradientsOfRandomSlopes) {
  const Tensor leaf = tensor({-1.0f, 2.0f, -3.0f}).requires_grad_();
  const Tensor x = leaf * 1;
  F::rrelu(x, {.lower = 0.1, .upper = 0.9, .training = true, .inplace = true}).sum().backward();
  EXPECT_TRUE(allclose(leaf.grad(), x.detach() / leaf.detach()));
}

TEST(Builders, TakeLibtorchsSpellings) {
  const Tensor x = tensor({-1.0f, 0.3f, 2.0f});
  expect_values(F::hardshrink(x, F::HardshrinkFuncOptions().lambda(0.5)), {-1, 0, 2});
  expect_values(F::l1_loss(x, x * 2, F::L1LossFuncOptions("sum")), {3.3});
  expect_values(F::huber_loss(x, x, F::HuberLossFuncOptions("none")), {0, 0, 0});
  const Tensor image = ones({1, 1, 4, 6});
  EXPECT_EQ(F::lp_pool2d(image, F::LPPool2dFuncOptions(1, std::vector<int64_t>{2, 3})).sizes(),
            IntList({1, 1, 2, 2}));
  expect_error(ErrorCode::kShape, {"[sizes]", "(3,) has 1 sizes: give 2"},
               [] { MaxPool2dOptions(std::vector<int64_t>{3}); });
  const auto [y, indices] =
      F::adaptive_max_pool1d_with_indices(x.view({1, 3}), F::AdaptiveMaxPool1dFuncOptions(1));
  expect_values(y, {2});
  expect_values(indices, {2});
  EXPECT_TRUE(special::erf(x).equal(erf(x)) && linalg::norm(x).equal(linalg_norm(x)));
}

TEST(Functional, TakesIndicesBeforeTheTable) {
  const Tensor table = tensor({{0, 1}, {2, 3}, {4, 5}});
  expect_values(F::embedding(tensor({2, 0}), table), {4, 5, 0, 1});
  expect_error(ErrorCode::kType, {"[embedding]", "embedding(indices, weight)"}, [] {
    F::embedding(randn({3, 2}), tensor({0, 1}));
  });
}

TEST(Functional, BatchNormTakesStatisticsBeforeWeights) {
  const Tensor x = tensor({{{2.0f}}, {{6.0f}}});
  expect_values(F::batch_norm(x, tensor({2.0f}), tensor({4.0f}), {.eps = 0}), {0, 2});
}

TEST(Constants, AreTextsOfOptions) {
  const Tensor x = tensor({1.0f, 3.0f}), y = zeros({2});
  expect_values(mytorch::mse_loss(x, y, mytorch::Reduction::Sum), {10});
  expect_values(L1Loss(L1LossOptions(kNone))(x, y), {1, 3});
  EXPECT_DOUBLE_EQ(init::calculate_gain(kReLU), init::gain(init::Nonlinearity::kReLU));
}

TEST(Containers, TakeNamedModules) {
  Sequential net({{"fc", Linear(4, 8)}, {"act", ReLU()}, {"f", [](const Tensor& x) { return x; }}});
  EXPECT_EQ(net.named_parameters().keys(), (std::vector<std::string>{"fc.weight", "fc.bias"}));
  EXPECT_FALSE(clone(net).named_parameters()[0].second.is_same(net.named_parameters()[0].second));
  ModuleDict dict;
  dict->update({{"fc", Linear(4, 4).ptr()}, {"act", Functional(relu)}});
  EXPECT_TRUE(dict->contains("act"));
  expect_values(dict["act"](tensor({-1.0f, 2.0f})), {0, 2});
}

TEST(NamedItems, HaveKeysAndValuesAndAreFoundByName) {
  Sequential net(Linear(4, 2), ReLU());
  for (auto& item : net->named_parameters()) EXPECT_EQ(item.key(), item.first);
  EXPECT_TRUE(net.named_parameters()["0.weight"].is_same(net.at<Linear>(0).weight));
  EXPECT_FALSE(net.named_parameters().contains("1.weight"));
  expect_error(ErrorCode::kValue, {"'2.bias'", "0.weight, 0.bias"},
               [&] { net.named_parameters()["2.bias"]; });
  EXPECT_EQ(net->modules(false).size(), 2u);
  EXPECT_EQ(net->modules()[0], &net);
  EXPECT_EQ(net->children()[1]->name(), "ReLU");
}

TEST(Utils, MoveParametersToAVectorAndBack) {
  Linear fc(2, 3);
  const Tensor vector = utils::parameters_to_vector(fc->parameters());
  EXPECT_EQ(vector.numel(), 9);
  utils::vector_to_parameters(arange(0, 9), fc->parameters());
  expect_values(fc.weight, {0, 1, 2, 3, 4, 5});
  expect_values(fc.bias, {6, 7, 8});
  EXPECT_TRUE(fc.weight.requires_grad());
  expect_error(ErrorCode::kShape, {"[vector_to_parameters]", "(8,)", "9"},
               [&] { utils::vector_to_parameters(zeros({8}), fc->parameters()); });
}

}  // namespace
}  // namespace mytorch::nn
