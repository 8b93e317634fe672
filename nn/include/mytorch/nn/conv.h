// Convolutions and transposed convolutions over 1, 2 or 3 spatial dimensions.
#pragma once

#include <cstdint>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

template <size_t n>
struct ConvArgs {
  Sizes<n> stride = 1;
  ConvPadding<n> padding = 0;  // or "same" or "valid"
  Sizes<n> dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  OneOf<PaddingMode> padding_mode = PaddingMode::kZeros;  // or "reflect", ...
};
// Conv2dOptions(in_channels, out_channels, kernel_size).padding(1)
using Conv1dOptions = Options<ConvArgs<1>, int64_t, int64_t, Sizes<1>>;
using Conv2dOptions = Options<ConvArgs<2>, int64_t, int64_t, Sizes<2>>;
using Conv3dOptions = Options<ConvArgs<3>, int64_t, int64_t, Sizes<3>>;

template <size_t n>
struct ConvAllArgs : ConvArgs<n> {
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  Sizes<n> kernel_size = 0;
};

// Maps (N, in, ...) or (in, ...) to (N, out, ...) or (out, ...): Conv2d(1, 16, 3, {.padding = 1}).
// weight is (out, in / groups, kernel...), bias is (out); both are initialized uniformly in +-1 /
// sqrt(in / groups * kernel...).
template <size_t n>
class ConvNd : public Module {
 public:
  using Module::Module;
  ConvNd(int64_t in_channels, int64_t out_channels, Sizes<n> kernel_size, ConvArgs<n> options = {});
  Tensor forward(const Tensor& input) override;
  double flops(const Tensor& input, const Tensor& output) const override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;
  Tensor bias;  // undefined without bias
  BuiltOptions<ConvAllArgs<n>> options;

 protected:
  // A convolution that takes its number of input channels from its first input.
  ConvNd(int64_t out_channels, Sizes<n> kernel_size, ConvArgs<n> options);

 private:
  ConvNd(int64_t out_channels, const Sizes<n>& kernel_size, const ConvArgs<n>& options,
         int64_t in_channels);
  void create(int64_t in_channels);
};
extern template class ConvNd<1>;
extern template class ConvNd<2>;
extern template class ConvNd<3>;

class Conv1d final : public Layer<Conv1d, ConvNd<1>> {
 public:
  using Layer::Layer;
  template <
      class TakesOptionsOf = ConvArgs<1>,
      OptionNames Named =
          "stride, padding, dilation, groups, bias, padding_mode">  // chosen for a misspelt option
  Conv1d(int64_t, int64_t, Sizes<1>, ...) = delete;
};
class Conv2d final : public Layer<Conv2d, ConvNd<2>> {
 public:
  using Layer::Layer;
  template <
      class TakesOptionsOf = ConvArgs<2>,
      OptionNames Named =
          "stride, padding, dilation, groups, bias, padding_mode">  // chosen for a misspelt option
  Conv2d(int64_t, int64_t, Sizes<2>, ...) = delete;
};
class Conv3d final : public Layer<Conv3d, ConvNd<3>> {
 public:
  using Layer::Layer;
  template <
      class TakesOptionsOf = ConvArgs<3>,
      OptionNames Named =
          "stride, padding, dilation, groups, bias, padding_mode">  // chosen for a misspelt option
  Conv3d(int64_t, int64_t, Sizes<3>, ...) = delete;
};

// Convolutions that take in_channels from their first input. Until then parameters() throws.
class LazyConv1d final : public Layer<LazyConv1d, ConvNd<1>> {
 public:
  LazyConv1d(int64_t out_channels, Sizes<1> kernel_size, ConvArgs<1> options = {})
      : Layer(out_channels, kernel_size, options) {}
};
class LazyConv2d final : public Layer<LazyConv2d, ConvNd<2>> {
 public:
  LazyConv2d(int64_t out_channels, Sizes<2> kernel_size, ConvArgs<2> options = {})
      : Layer(out_channels, kernel_size, options) {}
};
class LazyConv3d final : public Layer<LazyConv3d, ConvNd<3>> {
 public:
  LazyConv3d(int64_t out_channels, Sizes<3> kernel_size, ConvArgs<3> options = {})
      : Layer(out_channels, kernel_size, options) {}
};

template <size_t n>
struct ConvTransposeArgs {
  Sizes<n> stride = 1;
  Sizes<n> padding = 0;
  Sizes<n> output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Sizes<n> dilation = 1;
};
using ConvTranspose1dOptions = Options<ConvTransposeArgs<1>, int64_t, int64_t, Sizes<1>>;
using ConvTranspose2dOptions = Options<ConvTransposeArgs<2>, int64_t, int64_t, Sizes<2>>;
using ConvTranspose3dOptions = Options<ConvTransposeArgs<3>, int64_t, int64_t, Sizes<3>>;

template <size_t n>
struct ConvTransposeAllArgs : ConvTransposeArgs<n> {
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  Sizes<n> kernel_size = 0;
};

// The gradient of a convolution with respect to its input, as a layer: maps (N, in, ...) or (in,
// ...) to (N, out, ...) or (out, ...). weight is (in, out / groups, kernel...), bias is (out); both
// are initialized uniformly in +-1 / sqrt(out / groups * kernel...).
template <size_t n>
class ConvTransposeNd : public Module {
 public:
  using Module::Module;
  ConvTransposeNd(int64_t in_channels, int64_t out_channels, Sizes<n> kernel_size,
                  ConvTransposeArgs<n> options = {});
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
  BuiltOptions<ConvTransposeAllArgs<n>> options;

 protected:
  // A layer that takes its number of input channels from its first input.
  ConvTransposeNd(int64_t out_channels, Sizes<n> kernel_size, ConvTransposeArgs<n> options);

 private:
  ConvTransposeNd(int64_t out_channels, const Sizes<n>& kernel_size,
                  const ConvTransposeArgs<n>& options, int64_t in_channels);
  void create(int64_t in_channels);
  void finish(const Tensor& input);  // if lazy
};
extern template class ConvTransposeNd<1>;
extern template class ConvTransposeNd<2>;
extern template class ConvTransposeNd<3>;

class ConvTranspose1d final : public Layer<ConvTranspose1d, ConvTransposeNd<1>> {
 public:
  using Layer::Layer;
  template <class TakesOptionsOf = ConvTransposeArgs<1>,
            OptionNames Named =
                "stride, padding, output_padding, groups, bias, dilation">  // chosen for a misspelt
                                                                            // option
  ConvTranspose1d(int64_t, int64_t, Sizes<1>, ...) = delete;
};
class ConvTranspose2d final : public Layer<ConvTranspose2d, ConvTransposeNd<2>> {
 public:
  using Layer::Layer;
  template <class TakesOptionsOf = ConvTransposeArgs<2>,
            OptionNames Named =
                "stride, padding, output_padding, groups, bias, dilation">  // chosen for a misspelt
                                                                            // option
  ConvTranspose2d(int64_t, int64_t, Sizes<2>, ...) = delete;
};
class ConvTranspose3d final : public Layer<ConvTranspose3d, ConvTransposeNd<3>> {
 public:
  using Layer::Layer;
  template <class TakesOptionsOf = ConvTransposeArgs<3>,
            OptionNames Named =
                "stride, padding, output_padding, groups, bias, dilation">  // chosen for a misspelt
                                                                            // option
  ConvTranspose3d(int64_t, int64_t, Sizes<3>, ...) = delete;
};

// Transposed convolutions that take in_channels from their first input. Until then parameters()
// throws.
class LazyConvTranspose1d final : public Layer<LazyConvTranspose1d, ConvTransposeNd<1>> {
 public:
  LazyConvTranspose1d(int64_t out_channels, Sizes<1> kernel_size, ConvTransposeArgs<1> options = {})
      : Layer(out_channels, kernel_size, options) {}
};
class LazyConvTranspose2d final : public Layer<LazyConvTranspose2d, ConvTransposeNd<2>> {
 public:
  LazyConvTranspose2d(int64_t out_channels, Sizes<2> kernel_size, ConvTransposeArgs<2> options = {})
      : Layer(out_channels, kernel_size, options) {}
};
class LazyConvTranspose3d final : public Layer<LazyConvTranspose3d, ConvTransposeNd<3>> {
 public:
  LazyConvTranspose3d(int64_t out_channels, Sizes<3> kernel_size, ConvTransposeArgs<3> options = {})
      : Layer(out_channels, kernel_size, options) {}
};

}  // namespace mytorch::nn
