// Residual networks for images (He et al., "Deep residual learning for image recognition", CVPR
// 2016) with torchvision's names of weights, so that its state dicts load.
#pragma once

#include <array>
#include <cstdint>

#include "mytorch/nn/container.h"
#include "mytorch/nn/conv.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/pooling.h"

namespace mytorch::nn::models {

struct ResNetConfig {
  std::array<int64_t, 4> layers = {3, 4, 6, 3};  // blocks of each of the four stages
  bool bottleneck = true;                        // three convolutions per block, or two
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  int64_t width = 64;  // channels of the first stage's convolutions; each stage doubles them

  static ResNetConfig resnet18() { return {.layers = {2, 2, 2, 2}, .bottleneck = false}; }
  static ResNetConfig resnet34() { return {.bottleneck = false}; }
  static ResNetConfig resnet50() { return {}; }
  static ResNetConfig resnet101() { return {.layers = {3, 4, 23, 3}}; }
  static ResNetConfig resnet152() { return {.layers = {3, 8, 36, 3}}; }
};

// A residual block: two 3 x 3 convolutions or, as a bottleneck, 1 x 1, 3 x 3 and 1 x 1, the last
// with four times as many channels.
class ResNetBlock final : public Layer<ResNetBlock> {
 public:
  using Layer::Layer;
  ResNetBlock(int64_t in_channels, int64_t width, int64_t stride, bool bottleneck);
  Tensor forward(const Tensor& x) override;

  Conv2d conv1{nullptr};
  BatchNorm2d bn1{nullptr};
  Conv2d conv2{nullptr};
  BatchNorm2d bn2{nullptr};
  Conv2d conv3{nullptr};  // this and the next: of a bottleneck
  BatchNorm2d bn3{nullptr};
  Sequential downsample{nullptr};  // where the shape changes
};

// Maps (N, in_channels, H, W) to logits (N, num_classes). Weights are initialized as torchvision's:
// convolutions with kaiming_normal_ by fan-out.
//
//   nn::models::ResNet net(nn::models::ResNetConfig::resnet50());
//   net.load_state_dict(nn::load_safetensors("resnet50.safetensors"));
//
// On GPUs channels-last images (x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2})) under
// autocast are the fastest; all layers keep that order.
class ResNet final : public Layer<ResNet> {
 public:
  using Layer::Layer;
  // Throws Error(kValue) if a size is less than 1.
  explicit ResNet(const ResNetConfig& config);
  Tensor forward(const Tensor& x) override;
  // Returns the input of the last layer, (N, features).
  Tensor features(const Tensor& x);
  const ResNetConfig& config() const { return config_; }

  Conv2d conv1{nullptr};
  BatchNorm2d bn1{nullptr};
  Sequential layer1{nullptr};
  Sequential layer2{nullptr};
  Sequential layer3{nullptr};
  Sequential layer4{nullptr};
  Linear fc{nullptr};

 private:
  ResNetConfig config_;
};

}  // namespace mytorch::nn::models
