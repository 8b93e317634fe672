// Residual networks: the names and counts of torchvision's parameters, and values computed with
// operators from the state dict.
#include "mytorch/nn/models/resnet.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/mytorch.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn::models {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::values;

TEST(ResNet, HasTheParametersOfTorchvision) {
  // torchvision's documentation gives these counts.
  const std::pair<ResNetConfig, int64_t> models[] = {{ResNetConfig::resnet18(), 11'689'512},
                                                     {ResNetConfig::resnet34(), 21'797'672},
                                                     {ResNetConfig::resnet50(), 25'557'032},
                                                     {ResNetConfig::resnet101(), 44'549'160},
                                                     {ResNetConfig::resnet152(), 60'192'808}};
  for (const auto& [config, count] : models) EXPECT_EQ(ResNet(config).num_parameters(), count);
}

TEST(ResNet, HasTheNamesOfTorchvision) {
  const TensorMap large = ResNet(ResNetConfig::resnet50()).state_dict();
  EXPECT_EQ(large.size(), 320u);
  const std::pair<const char*, std::vector<int64_t>> some[] = {
      {"conv1.weight", {64, 3, 7, 7}},
      {"bn1.num_batches_tracked", {}},
      {"layer1.0.conv1.weight", {64, 64, 1, 1}},
      {"layer1.0.conv2.weight", {64, 64, 3, 3}},
      {"layer1.0.bn3.running_var", {256}},
      {"layer1.0.downsample.0.weight", {256, 64, 1, 1}},
      {"layer1.0.downsample.1.bias", {256}},
      {"layer3.5.conv3.weight", {1024, 256, 1, 1}},
      {"layer4.2.bn2.running_mean", {512}},
      {"fc.weight", {1000, 2048}},
      {"fc.bias", {1000}},
  };
  for (const auto& [name, sizes] : some) {
    ASSERT_TRUE(large.contains(name)) << name;
    EXPECT_TRUE(large.at(name).sizes() == IntList(sizes)) << name;
  }
  EXPECT_FALSE(large.contains("layer1.1.downsample.0.weight"));
  EXPECT_FALSE(large.contains("conv1.bias"));
  const TensorMap small = ResNet(ResNetConfig::resnet18()).state_dict();
  EXPECT_EQ(small.size(), 122u);
  EXPECT_FALSE(small.contains("layer1.0.downsample.0.weight"));
  EXPECT_TRUE(small.contains("layer2.0.downsample.0.weight"));
}

// The network as torchvision's forward computes it in evaluation.
struct Composed {
  const TensorMap& state;
  bool bottleneck;

  Tensor norm(const std::string& name, const Tensor& x) const {
    const auto of = [&](const char* part) {
      return state.at(name + "." + part).view({1, -1, 1, 1});
    };
    return (x - of("running_mean")) / mytorch::sqrt(of("running_var") + 1e-5) * of("weight") +
           of("bias");
  }
  Tensor conv(const std::string& name, const Tensor& x, int64_t stride) const {
    const Tensor& weight = state.at(name + ".weight");
    return mytorch::conv2d(x, weight, {}, {stride, stride},
                           {weight.size(2) / 2, weight.size(2) / 2});
  }
  Tensor block(const std::string& name, const Tensor& x, int64_t stride) const {
    Tensor y = conv(name + ".conv1", x, bottleneck ? 1 : stride);
    y = mytorch::relu(norm(name + ".bn1", y));
    y = norm(name + ".bn2", conv(name + ".conv2", y, bottleneck ? stride : 1));
    if (bottleneck) y = norm(name + ".bn3", conv(name + ".conv3", mytorch::relu(y), 1));
    const bool changes = state.contains(name + ".downsample.0.weight");
    return mytorch::relu(
        y + (changes ? norm(name + ".downsample.1", conv(name + ".downsample.0", x, stride)) : x));
  }
  Tensor operator()(const Tensor& x) const {
    Tensor y = mytorch::relu(norm("bn1", conv("conv1", x, 2)));
    y = mytorch::max_pool2d(y, {3, 3}, {2, 2}, {1, 1});
    for (int stage = 1; stage <= 4; ++stage) {
      for (int i = 0;; ++i) {
        const std::string name = "layer" + std::to_string(stage) + "." + std::to_string(i);
        if (!state.contains(name + ".conv1.weight")) break;
        y = block(name, y, stage > 1 && i == 0 ? 2 : 1);
      }
    }
    return mytorch::linear(y.mean({2, 3}), state.at("fc.weight"), state.at("fc.bias"));
  }
};

TEST(ResNet, ComputesWhatTheOperatorsDo) {
  const NoGradGuard no_grad;
  for (const bool bottleneck : {true, false}) {
    SCOPED_TRACE(bottleneck);
    manual_seed(1);
    ResNet model({.layers = {1, 2, 1, 1}, .bottleneck = bottleneck, .num_classes = 5, .width = 4});
    model.to(kFloat64);
    model.eval();
    for (const auto& [name, tensor] : model.state_dict()) {
      if (tensor.dim() == 1) tensor.uniform_(0.5, 1.5);  // statistics and factors
    }
    const Tensor x = randn({2, 3, 40, 36}, kFloat64);
    const TensorMap state = model.state_dict();
    const Tensor expected = Composed{state, bottleneck}(x);
    expect_values(model(x), values(expected), 1e-9);
    // The same in the channels-last order.
    const Tensor last = x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
    expect_values(model(last), values(expected), 1e-9);
  }
}

TEST(ResNet, Trains) {
  manual_seed(2);
  ResNet model({.layers = {1, 1, 1, 1}, .num_classes = 4, .width = 8});
  optim::SGD sgd(model.parameters(), {.lr = 0.02, .momentum = 0.9});
  const Tensor x = randn({8, 3, 32, 32}), y = arange(8).remainder(4);
  double first = 0, last = 0;
  for (int step = 0; step < 12; ++step) {
    const Tensor loss = cross_entropy(model(x), y);
    sgd.zero_grad();
    loss.backward();
    for (const auto& [name, parameter] : model.named_parameters()) {
      EXPECT_TRUE(parameter.grad().defined()) << name;
    }
    sgd.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.5 * first);
  EXPECT_EQ(model.bn1.num_batches_tracked.item<int64_t>(), 12);
}

TEST(ResNet, RefusesSizesBelowOne) {
  expect_error(ErrorCode::kValue, {"ResNetConfig", "width"}, [] { ResNet({.width = 0}); });
  expect_error(ErrorCode::kValue, {"layers[2]"}, [] { ResNet({.layers = {1, 1, 0, 1}}); });
}

}  // namespace
}  // namespace mytorch::nn::models
