// Pooling over windows of 1, 2 or 3 spatial dimensions, for inputs (N, C, ...) or (C, ...).
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

template <size_t n>
struct MaxPoolArgs {
  OptionalSizes<n> stride = {};  // defaults to the kernel size
  Sizes<n> padding = 0;
  Sizes<n> dilation = 1;
  bool ceil_mode = false;
};
using MaxPool1dOptions = Options<MaxPoolArgs<1>, Sizes<1>>;
using MaxPool2dOptions = Options<MaxPoolArgs<2>, Sizes<2>>;
using MaxPool3dOptions = Options<MaxPoolArgs<3>, Sizes<3>>;

template <size_t n>
struct MaxPoolAllArgs : MaxPoolArgs<n> {
  Sizes<n> kernel_size = 0;
};

// The largest element of each window.
template <size_t n>
class MaxPoolNd : public Module {
 public:
  using Module::Module;
  explicit MaxPoolNd(Sizes<n> kernel_size, MaxPoolArgs<n> options = {});
  Tensor forward(const Tensor& input) override;
  // Returns the indices in the flattened window dimensions of the input, too.
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& input);
  std::string describe() const override;

  BuiltOptions<MaxPoolAllArgs<n>> options;
};

template <size_t n>
struct AvgPoolArgs {
  OptionalSizes<n> stride = {};  // defaults to the kernel size
  Sizes<n> padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<int64_t> divisor_override = {};
};
using AvgPool1dOptions = Options<AvgPoolArgs<1>, Sizes<1>>;
using AvgPool2dOptions = Options<AvgPoolArgs<2>, Sizes<2>>;
using AvgPool3dOptions = Options<AvgPoolArgs<3>, Sizes<3>>;

template <size_t n>
struct AvgPoolAllArgs : AvgPoolArgs<n> {
  Sizes<n> kernel_size = 0;
};

// The mean of each window.
template <size_t n>
class AvgPoolNd : public Module {
 public:
  using Module::Module;
  explicit AvgPoolNd(Sizes<n> kernel_size, AvgPoolArgs<n> options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

  BuiltOptions<AvgPoolAllArgs<n>> options;
};

template <size_t n>
struct LPPoolArgs {
  OptionalSizes<n> stride = {};  // defaults to the kernel size
  bool ceil_mode = false;
};
using LPPool1dOptions = Options<LPPoolArgs<1>, double, Sizes<1>>;
using LPPool2dOptions = Options<LPPoolArgs<2>, double, Sizes<2>>;
using LPPool3dOptions = Options<LPPoolArgs<3>, double, Sizes<3>>;

template <size_t n>
struct LPPoolAllArgs : LPPoolArgs<n> {
  double norm_type = 0;
  Sizes<n> kernel_size = 0;
};

// The norm of each window, sum(x^p)^(1/p).
template <size_t n>
class LPPoolNd : public Module {
 public:
  using Module::Module;
  LPPoolNd(double norm_type, Sizes<n> kernel_size, LPPoolArgs<n> options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

  BuiltOptions<LPPoolAllArgs<n>> options;
};

using AdaptiveAvgPool1dOptions = Options<NoArgs, Sizes<1>>;
using AdaptiveAvgPool2dOptions = Options<NoArgs, Sizes<2>>;
using AdaptiveAvgPool3dOptions = Options<NoArgs, Sizes<3>>;

template <size_t n>
struct AdaptivePoolAllArgs {
  Sizes<n> output_size = 0;
};

// Averages over windows that divide the input into `output_size` parts as evenly as possible.
template <size_t n>
class AdaptiveAvgPoolNd : public Module {
 public:
  using Module::Module;
  explicit AdaptiveAvgPoolNd(Sizes<n> output_size);
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

  BuiltOptions<AdaptivePoolAllArgs<n>> options;
};

using AdaptiveMaxPool1dOptions = Options<NoArgs, Sizes<1>>;
using AdaptiveMaxPool2dOptions = Options<NoArgs, Sizes<2>>;
using AdaptiveMaxPool3dOptions = Options<NoArgs, Sizes<3>>;

// The largest element of each of these windows.
template <size_t n>
class AdaptiveMaxPoolNd : public Module {
 public:
  using Module::Module;
  explicit AdaptiveMaxPoolNd(Sizes<n> output_size);
  Tensor forward(const Tensor& input) override;
  // Returns the indices in the flattened window dimensions of the input, too.
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& input);
  std::string describe() const override;

  BuiltOptions<AdaptivePoolAllArgs<n>> options;
};

extern template class MaxPoolNd<1>;
extern template class MaxPoolNd<2>;
extern template class MaxPoolNd<3>;
extern template class AvgPoolNd<1>;
extern template class AvgPoolNd<2>;
extern template class AvgPoolNd<3>;
extern template class LPPoolNd<1>;
extern template class LPPoolNd<2>;
extern template class LPPoolNd<3>;
extern template class AdaptiveAvgPoolNd<1>;
extern template class AdaptiveAvgPoolNd<2>;
extern template class AdaptiveAvgPoolNd<3>;
extern template class AdaptiveMaxPoolNd<1>;
extern template class AdaptiveMaxPoolNd<2>;
extern template class AdaptiveMaxPoolNd<3>;

class MaxPool1d final : public Layer<MaxPool1d, MaxPoolNd<1>> {
 public:
  using Layer::Layer;
};
class MaxPool2d final : public Layer<MaxPool2d, MaxPoolNd<2>> {
 public:
  using Layer::Layer;
};
class MaxPool3d final : public Layer<MaxPool3d, MaxPoolNd<3>> {
 public:
  using Layer::Layer;
};
class AvgPool1d final : public Layer<AvgPool1d, AvgPoolNd<1>> {
 public:
  using Layer::Layer;
};
class AvgPool2d final : public Layer<AvgPool2d, AvgPoolNd<2>> {
 public:
  using Layer::Layer;
};
class AvgPool3d final : public Layer<AvgPool3d, AvgPoolNd<3>> {
 public:
  using Layer::Layer;
};
class LPPool1d final : public Layer<LPPool1d, LPPoolNd<1>> {
 public:
  using Layer::Layer;
};
class LPPool2d final : public Layer<LPPool2d, LPPoolNd<2>> {
 public:
  using Layer::Layer;
};
class LPPool3d final : public Layer<LPPool3d, LPPoolNd<3>> {
 public:
  using Layer::Layer;
};
class AdaptiveAvgPool1d final : public Layer<AdaptiveAvgPool1d, AdaptiveAvgPoolNd<1>> {
 public:
  using Layer::Layer;
};
class AdaptiveAvgPool2d final : public Layer<AdaptiveAvgPool2d, AdaptiveAvgPoolNd<2>> {
 public:
  using Layer::Layer;
};
class AdaptiveAvgPool3d final : public Layer<AdaptiveAvgPool3d, AdaptiveAvgPoolNd<3>> {
 public:
  using Layer::Layer;
};
class AdaptiveMaxPool1d final : public Layer<AdaptiveMaxPool1d, AdaptiveMaxPoolNd<1>> {
 public:
  using Layer::Layer;
};
class AdaptiveMaxPool2d final : public Layer<AdaptiveMaxPool2d, AdaptiveMaxPoolNd<2>> {
 public:
  using Layer::Layer;
};
class AdaptiveMaxPool3d final : public Layer<AdaptiveMaxPool3d, AdaptiveMaxPoolNd<3>> {
 public:
  using Layer::Layer;
};

}  // namespace mytorch::nn
