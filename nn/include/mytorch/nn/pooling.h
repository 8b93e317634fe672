// Pooling layers for (N, C, H, W) or (C, H, W).
#pragma once

#include <cstdint>
#include <optional>

#include "mytorch/nn/module.h"
#include "mytorch/nn/size2.h"

namespace mytorch::nn {

struct MaxPool2dOptions {
  std::optional<Size2> stride = {};  // defaults to the kernel size
  Size2 padding = 0;
  Size2 dilation = 1;
  bool ceil_mode = false;
};

class MaxPool2d final : public Module {
 public:
  explicit MaxPool2d(Size2 kernel_size, MaxPool2dOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  Size2 kernel_size_;
  Size2 stride_;
  MaxPool2dOptions options_;
};

struct AvgPool2dOptions {
  std::optional<Size2> stride = {};  // defaults to the kernel size
  Size2 padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
};

class AvgPool2d final : public Module {
 public:
  explicit AvgPool2d(Size2 kernel_size, AvgPool2dOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  Size2 kernel_size_;
  Size2 stride_;
  AvgPool2dOptions options_;
};

// Averages over windows that divide the input into `output_size` parts as evenly as possible.
class AdaptiveAvgPool2d final : public Module {
 public:
  explicit AdaptiveAvgPool2d(Size2 output_size) : output_size_(output_size) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  Size2 output_size_;
};

}  // namespace mytorch::nn
