// Convolutions.
#pragma once

#include <cstdint>

#include "mytorch/nn/module.h"
#include "mytorch/nn/size2.h"

namespace mytorch::nn {

struct Conv1dOptions {
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

// Maps (N, in, L) or (in, L) to (N, out, L') or (out, L'). weight is (out, in / groups, kernel),
// bias is (out); both are initialized uniformly in +-1 / sqrt(in / groups * kernel).
class Conv1d final : public Module {
 public:
  Conv1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size,
         Conv1dOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;
  Tensor bias;  // undefined without bias

 private:
  Conv1dOptions options_;
};

struct Conv2dOptions {
  Size2 stride = 1;
  Size2 padding = 0;
  Size2 dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

// Maps (N, in, H, W) or (in, H, W) to (N, out, H', W') or (out, H', W'): Conv2d(1, 16, 3, {.padding
// = 1}). weight is (out, in / groups, height, width), bias is (out); both are initialized uniformly
// in +-1 / sqrt(in / groups * height * width).
class Conv2d final : public Module {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, Size2 kernel_size, Conv2dOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;
  Tensor bias;  // undefined without bias

 private:
  Conv2dOptions options_;
};

}  // namespace mytorch::nn
