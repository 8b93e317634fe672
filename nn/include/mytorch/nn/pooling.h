// Pooling over windows of 1, 2 or 3 spatial dimensions, for inputs (N, C, ...) or (C, ...).
#pragma once

#include <cstdint>
#include <optional>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

template <size_t n>
struct MaxPoolOptions {
  OptionalSizes<n> stride = {};  // defaults to the kernel size
  Sizes<n> padding = 0;
  Sizes<n> dilation = 1;
  bool ceil_mode = false;
};
using MaxPool1dOptions = MaxPoolOptions<1>;
using MaxPool2dOptions = MaxPoolOptions<2>;
using MaxPool3dOptions = MaxPoolOptions<3>;

// The largest element of each window.
template <size_t n>
class MaxPoolNd : public Module {
 public:
  explicit MaxPoolNd(Sizes<n> kernel_size, MaxPoolOptions<n> options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  Sizes<n> kernel_size_;
  MaxPoolOptions<n> options_;
};

template <size_t n>
struct AvgPoolOptions {
  OptionalSizes<n> stride = {};  // defaults to the kernel size
  Sizes<n> padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<int64_t> divisor_override = {};
};
using AvgPool1dOptions = AvgPoolOptions<1>;
using AvgPool2dOptions = AvgPoolOptions<2>;
using AvgPool3dOptions = AvgPoolOptions<3>;

// The mean of each window.
template <size_t n>
class AvgPoolNd : public Module {
 public:
  explicit AvgPoolNd(Sizes<n> kernel_size, AvgPoolOptions<n> options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  Sizes<n> kernel_size_;
  AvgPoolOptions<n> options_;
};

template <size_t n>
struct LPPoolOptions {
  OptionalSizes<n> stride = {};  // defaults to the kernel size
  bool ceil_mode = false;
};
using LPPool1dOptions = LPPoolOptions<1>;
using LPPool2dOptions = LPPoolOptions<2>;
using LPPool3dOptions = LPPoolOptions<3>;

// The norm of each window, sum(x^p)^(1/p).
template <size_t n>
class LPPoolNd : public Module {
 public:
  LPPoolNd(double norm_type, Sizes<n> kernel_size, LPPoolOptions<n> options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  double norm_type_;
  Sizes<n> kernel_size_;
  LPPoolOptions<n> options_;
};

// Averages over windows that divide the input into `output_size` parts as evenly as possible.
template <size_t n>
class AdaptiveAvgPoolNd : public Module {
 public:
  explicit AdaptiveAvgPoolNd(Sizes<n> output_size);
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  Sizes<n> output_size_;
};

// The largest element of each of these windows.
template <size_t n>
class AdaptiveMaxPoolNd : public Module {
 public:
  explicit AdaptiveMaxPoolNd(Sizes<n> output_size);
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  Sizes<n> output_size_;
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

class MaxPool1d final : public MaxPoolNd<1> {
 public:
  using MaxPoolNd::MaxPoolNd;
};
class MaxPool2d final : public MaxPoolNd<2> {
 public:
  using MaxPoolNd::MaxPoolNd;
};
class MaxPool3d final : public MaxPoolNd<3> {
 public:
  using MaxPoolNd::MaxPoolNd;
};
class AvgPool1d final : public AvgPoolNd<1> {
 public:
  using AvgPoolNd::AvgPoolNd;
};
class AvgPool2d final : public AvgPoolNd<2> {
 public:
  using AvgPoolNd::AvgPoolNd;
};
class AvgPool3d final : public AvgPoolNd<3> {
 public:
  using AvgPoolNd::AvgPoolNd;
};
class LPPool1d final : public LPPoolNd<1> {
 public:
  using LPPoolNd::LPPoolNd;
};
class LPPool2d final : public LPPoolNd<2> {
 public:
  using LPPoolNd::LPPoolNd;
};
class LPPool3d final : public LPPoolNd<3> {
 public:
  using LPPoolNd::LPPoolNd;
};
class AdaptiveAvgPool1d final : public AdaptiveAvgPoolNd<1> {
 public:
  using AdaptiveAvgPoolNd::AdaptiveAvgPoolNd;
};
class AdaptiveAvgPool2d final : public AdaptiveAvgPoolNd<2> {
 public:
  using AdaptiveAvgPoolNd::AdaptiveAvgPoolNd;
};
class AdaptiveAvgPool3d final : public AdaptiveAvgPoolNd<3> {
 public:
  using AdaptiveAvgPoolNd::AdaptiveAvgPoolNd;
};
class AdaptiveMaxPool1d final : public AdaptiveMaxPoolNd<1> {
 public:
  using AdaptiveMaxPoolNd::AdaptiveMaxPoolNd;
};
class AdaptiveMaxPool2d final : public AdaptiveMaxPoolNd<2> {
 public:
  using AdaptiveMaxPoolNd::AdaptiveMaxPoolNd;
};
class AdaptiveMaxPool3d final : public AdaptiveMaxPoolNd<3> {
 public:
  using AdaptiveMaxPoolNd::AdaptiveMaxPoolNd;
};

}  // namespace mytorch::nn
