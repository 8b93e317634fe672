// Convolutions and transposed convolutions over 1, 2 or 3 spatial dimensions.
#pragma once

#include <cstdint>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

template <size_t n>
struct ConvOptions {
  Sizes<n> stride = 1;
  ConvPadding<n> padding = 0;  // or "same" or "valid"
  Sizes<n> dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  OneOf<PaddingMode> padding_mode = PaddingMode::kZeros;  // or "reflect", ...
};
using Conv1dOptions = ConvOptions<1>;
using Conv2dOptions = ConvOptions<2>;
using Conv3dOptions = ConvOptions<3>;

// Maps (N, in, ...) or (in, ...) to (N, out, ...) or (out, ...): Conv2d(1, 16, 3, {.padding = 1}).
// weight is (out, in / groups, kernel...), bias is (out); both are initialized uniformly in +-1 /
// sqrt(in / groups * kernel...).
template <size_t n>
class ConvNd : public Module {
 public:
  ConvNd(int64_t in_channels, int64_t out_channels, Sizes<n> kernel_size,
         ConvOptions<n> options = {});
  Tensor forward(const Tensor& input) override;
  double flops(const Tensor& input, const Tensor& output) const override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;
  Tensor bias;  // undefined without bias

 protected:
  // A convolution that takes its number of input channels from its first input.
  ConvNd(int64_t out_channels, Sizes<n> kernel_size, ConvOptions<n> options);

 private:
  ConvNd(int64_t out_channels, const Sizes<n>& kernel_size, const ConvOptions<n>& options,
         int64_t in_channels);
  void create(int64_t in_channels);

  int64_t out_channels_;
  Sizes<n> kernel_size_;
  ConvOptions<n> options_;
};
extern template class ConvNd<1>;
extern template class ConvNd<2>;
extern template class ConvNd<3>;

class Conv1d final : public ConvNd<1> {
 public:
  Conv1d(int64_t in_channels, int64_t out_channels, Sizes<1> kernel_size,
         Conv1dOptions options = {})
      : ConvNd(in_channels, out_channels, kernel_size, options) {}
};
class Conv2d final : public ConvNd<2> {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, Sizes<2> kernel_size,
         Conv2dOptions options = {})
      : ConvNd(in_channels, out_channels, kernel_size, options) {}
};
class Conv3d final : public ConvNd<3> {
 public:
  Conv3d(int64_t in_channels, int64_t out_channels, Sizes<3> kernel_size,
         Conv3dOptions options = {})
      : ConvNd(in_channels, out_channels, kernel_size, options) {}
};

// Convolutions that take in_channels from their first input. Until then parameters() throws.
class LazyConv1d final : public ConvNd<1> {
 public:
  LazyConv1d(int64_t out_channels, Sizes<1> kernel_size, Conv1dOptions options = {})
      : ConvNd(out_channels, kernel_size, options) {}
};
class LazyConv2d final : public ConvNd<2> {
 public:
  LazyConv2d(int64_t out_channels, Sizes<2> kernel_size, Conv2dOptions options = {})
      : ConvNd(out_channels, kernel_size, options) {}
};
class LazyConv3d final : public ConvNd<3> {
 public:
  LazyConv3d(int64_t out_channels, Sizes<3> kernel_size, Conv3dOptions options = {})
      : ConvNd(out_channels, kernel_size, options) {}
};

template <size_t n>
struct ConvTransposeOptions {
  Sizes<n> stride = 1;
  Sizes<n> padding = 0;
  Sizes<n> output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Sizes<n> dilation = 1;
};
using ConvTranspose1dOptions = ConvTransposeOptions<1>;
using ConvTranspose2dOptions = ConvTransposeOptions<2>;
using ConvTranspose3dOptions = ConvTransposeOptions<3>;

// The gradient of a convolution with respect to its input, as a layer: maps (N, in, ...) or (in,
// ...) to (N, out, ...) or (out, ...). weight is (in, out / groups, kernel...), bias is (out); both
// are initialized uniformly in +-1 / sqrt(out / groups * kernel...).
template <size_t n>
class ConvTransposeNd : public Module {
 public:
  ConvTransposeNd(int64_t in_channels, int64_t out_channels, Sizes<n> kernel_size,
                  ConvTransposeOptions<n> options = {});
  Tensor forward(const Tensor& input) override;
  // Returns an output of spatial size `output_size`, in place of the option output_padding. Throws
  // Error(kValue) if the stride makes that size impossible.
  Tensor forward(const Tensor& input, Sizes<n> output_size);
  using Module::operator();
  Tensor operator()(const Tensor& input, Sizes<n> output_size) {
    return forward(input, output_size);
  }
  double flops(const Tensor& input, const Tensor& output) const override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;
  Tensor bias;  // undefined without bias

 private:
  ConvTransposeOptions<n> options_;
};
extern template class ConvTransposeNd<1>;
extern template class ConvTransposeNd<2>;
extern template class ConvTransposeNd<3>;

class ConvTranspose1d final : public ConvTransposeNd<1> {
 public:
  using ConvTransposeNd::ConvTransposeNd;
};
class ConvTranspose2d final : public ConvTransposeNd<2> {
 public:
  using ConvTransposeNd::ConvTransposeNd;
};
class ConvTranspose3d final : public ConvTransposeNd<3> {
 public:
  using ConvTransposeNd::ConvTransposeNd;
};

}  // namespace mytorch::nn
