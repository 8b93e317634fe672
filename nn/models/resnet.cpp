#include "mytorch/nn/models/resnet.h"

#include <utility>

#include "mytorch/nn/init.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/flatten.h"
#include "mytorch/ops/max_pool2d.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/relu.h"
#include "nn/functional/options.h"

namespace mytorch::nn::models {
namespace {

int64_t expansion(bool bottleneck) { return bottleneck ? 4 : 1; }

Conv2d conv_of(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride) {
  Conv2d conv(in_channels, out_channels, kernel,
              {.stride = stride, .padding = kernel / 2, .bias = false});
  init::kaiming_normal_(conv.weight,
                        {.mode = init::FanMode::kOut, .nonlinearity = init::Nonlinearity::kReLU});
  return conv;
}

const ResNetConfig& checked(const ResNetConfig& config) {
  check_at_least("ResNetConfig", 1,
                 {{"layers[0]", config.layers[0]},
                  {"layers[1]", config.layers[1]},
                  {"layers[2]", config.layers[2]},
                  {"layers[3]", config.layers[3]},
                  {"num_classes", config.num_classes},
                  {"in_channels", config.in_channels},
                  {"width", config.width}});
  return config;
}

}  // namespace

ResNetBlock::ResNetBlock(int64_t in_channels, int64_t width, int64_t stride, bool bottleneck)
    : conv1(bottleneck ? conv_of(in_channels, width, 1, 1)
                       : conv_of(in_channels, width, 3, stride)),
      bn1(width),
      conv2(conv_of(width, width, 3, bottleneck ? stride : 1)),
      bn2(width) {
  const int64_t out_channels = width * expansion(bottleneck);
  register_module("conv1", conv1);
  register_module("bn1", bn1);
  register_module("conv2", conv2);
  register_module("bn2", bn2);
  if (bottleneck) {
    conv3 = conv_of(width, out_channels, 1, 1);
    bn3 = BatchNorm2d(out_channels);
    register_module("conv3", conv3);
    register_module("bn3", bn3);
  }
  if (stride != 1 || in_channels != out_channels) {
    downsample =
        Sequential(conv_of(in_channels, out_channels, 1, stride), BatchNorm2d(out_channels));
    register_module("downsample", downsample);
  }
}

Tensor ResNetBlock::forward(const Tensor& x) {
  Tensor y = bn2(conv2(relu(bn1(conv1(x)))));
  if (!conv3.is_empty()) y = bn3(conv3(relu(y)));
  return relu(add(y, downsample.is_empty() ? x : downsample(x)));
}

ResNet::ResNet(const ResNetConfig& config)
    : conv1(conv_of(checked(config).in_channels, config.width, 7, 2)),
      bn1(config.width),
      config_(config) {
  register_module("conv1", conv1);
  register_module("bn1", bn1);
  int64_t channels = config.width, width = config.width;
  const auto stage = [&](const char* name, Sequential& to, int64_t blocks, int64_t stride) {
    to = Sequential();
    for (int64_t i = 0; i < blocks; ++i) {
      to.push_back(ResNetBlock(channels, width, i == 0 ? stride : 1, config.bottleneck));
      channels = width * expansion(config.bottleneck);
    }
    width *= 2;
    register_module(name, to);
  };
  stage("layer1", layer1, config.layers[0], 1);
  stage("layer2", layer2, config.layers[1], 2);
  stage("layer3", layer3, config.layers[2], 2);
  stage("layer4", layer4, config.layers[3], 2);
  fc = Linear(channels, config.num_classes);
  register_module("fc", fc);
}

Tensor ResNet::features(const Tensor& x) {
  const Tensor y = max_pool2d(relu(bn1(conv1(x))), {3, 3}, {2, 2}, {1, 1});
  return flatten(mean(layer4(layer3(layer2(layer1(y)))), {2, 3}), 1);
}

Tensor ResNet::forward(const Tensor& x) { return fc(features(x)); }

}  // namespace mytorch::nn::models
