#include "mytorch/nn/pooling.h"

#include "mytorch/nn/functional.h"
#include "mytorch/nn/unpooling.h"
#include "mytorch/ops/adaptive_max_pool1d.h"
#include "mytorch/ops/adaptive_max_pool2d.h"
#include "mytorch/ops/adaptive_max_pool3d.h"
#include "nn/functional/options.h"

namespace mytorch::nn {
namespace {

// Returns "MaxPool2d", say.
template <size_t n>
std::string pool_name(const char* family) {
  return absl::StrCat(family, n, "d");
}

template <size_t n>
void check_pool(const char* family, const Sizes<n>& kernel_size, const OptionalSizes<n>& stride) {
  const std::string name = pool_name<n>(family);
  check_sizes(name.c_str(), 1, "kernel_size", kernel_size);
  check_sizes(name.c_str(), 1, "stride", stride.value_or(kernel_size));
}

}  // namespace

template <size_t n>
MaxPoolNd<n>::MaxPoolNd(Sizes<n> kernel_size, MaxPoolArgs<n> options)
    : options({options, kernel_size}) {
  check_pool("MaxPool", kernel_size, options.stride);
}

template <size_t n>
Tensor MaxPoolNd<n>::forward(const Tensor& input) {
  return functional::max_pool(input, options->kernel_size, options.args());
}

template <size_t n>
std::tuple<Tensor, Tensor> MaxPoolNd<n>::forward_with_indices(const Tensor& input) {
  return functional::max_pool_with_indices(input, options->kernel_size, options.args());
}

template <size_t n>
std::string MaxPoolNd<n>::describe() const {
  return absl::StrCat(pool_name<n>("MaxPool"), "(kernel_size=", text(options->kernel_size),
                      ", stride=", text(options->stride.value_or(options->kernel_size)),
                      ", padding=", text(options->padding), ", dilation=", text(options->dilation),
                      ", ceil_mode=", text(options->ceil_mode), ")");
}

template <size_t n>
AvgPoolNd<n>::AvgPoolNd(Sizes<n> kernel_size, AvgPoolArgs<n> options)
    : options({options, kernel_size}) {
  check_pool("AvgPool", kernel_size, options.stride);
}

template <size_t n>
Tensor AvgPoolNd<n>::forward(const Tensor& input) {
  return functional::avg_pool(input, options->kernel_size, options.args());
}

template <size_t n>
std::string AvgPoolNd<n>::describe() const {
  return absl::StrCat(pool_name<n>("AvgPool"), "(kernel_size=", text(options->kernel_size),
                      ", stride=", text(options->stride.value_or(options->kernel_size)),
                      ", padding=", text(options->padding), ")");
}

template <size_t n>
LPPoolNd<n>::LPPoolNd(double norm_type, Sizes<n> kernel_size, LPPoolArgs<n> options)
    : options({options, norm_type, kernel_size}) {
  check_pool("LPPool", kernel_size, options.stride);
}

template <size_t n>
Tensor LPPoolNd<n>::forward(const Tensor& input) {
  if constexpr (n == 1) {
    return functional::lp_pool1d(input, options->norm_type, options->kernel_size, options.args());
  } else if constexpr (n == 2) {
    return functional::lp_pool2d(input, options->norm_type, options->kernel_size, options.args());
  } else {
    return functional::lp_pool3d(input, options->norm_type, options->kernel_size, options.args());
  }
}

template <size_t n>
std::string LPPoolNd<n>::describe() const {
  return absl::StrCat(pool_name<n>("LPPool"), "(norm_type=", options->norm_type,
                      ", kernel_size=", text(options->kernel_size),
                      ", stride=", text(options->stride.value_or(options->kernel_size)),
                      ", ceil_mode=", text(options->ceil_mode), ")");
}

template <size_t n>
AdaptiveAvgPoolNd<n>::AdaptiveAvgPoolNd(Sizes<n> output_size) : options({output_size}) {
  check_sizes(pool_name<n>("AdaptiveAvgPool").c_str(), 0, "output_size", output_size);
}

template <size_t n>
Tensor AdaptiveAvgPoolNd<n>::forward(const Tensor& input) {
  if constexpr (n == 1) {
    return adaptive_avg_pool1d(input, options->output_size);
  } else if constexpr (n == 2) {
    return adaptive_avg_pool2d(input, options->output_size);
  } else {
    return functional::adaptive_avg_pool3d(input, options->output_size);
  }
}

template <size_t n>
std::string AdaptiveAvgPoolNd<n>::describe() const {
  return absl::StrCat(pool_name<n>("AdaptiveAvgPool"), "(output_size=", text(options->output_size),
                      ")");
}

template <size_t n>
AdaptiveMaxPoolNd<n>::AdaptiveMaxPoolNd(Sizes<n> output_size) : options({output_size}) {
  check_sizes(pool_name<n>("AdaptiveMaxPool").c_str(), 0, "output_size", output_size);
}

template <size_t n>
Tensor AdaptiveMaxPoolNd<n>::forward(const Tensor& input) {
  return std::get<0>(forward_with_indices(input));
}

template <size_t n>
std::tuple<Tensor, Tensor> AdaptiveMaxPoolNd<n>::forward_with_indices(const Tensor& input) {
  if constexpr (n == 1) {
    return mytorch::adaptive_max_pool1d(input, options->output_size);
  } else if constexpr (n == 2) {
    return mytorch::adaptive_max_pool2d(input, options->output_size);
  } else {
    return mytorch::adaptive_max_pool3d(input, options->output_size);
  }
}

template <size_t n>
std::string AdaptiveMaxPoolNd<n>::describe() const {
  return absl::StrCat(pool_name<n>("AdaptiveMaxPool"), "(output_size=", text(options->output_size),
                      ")");
}

template class MaxPoolNd<1>;
template class MaxPoolNd<2>;
template class MaxPoolNd<3>;
template class AvgPoolNd<1>;
template class AvgPoolNd<2>;
template class AvgPoolNd<3>;
template class LPPoolNd<1>;
template class LPPoolNd<2>;
template class LPPoolNd<3>;
template class AdaptiveAvgPoolNd<1>;
template class AdaptiveAvgPoolNd<2>;
template class AdaptiveAvgPoolNd<3>;
template class AdaptiveMaxPoolNd<1>;
template class AdaptiveMaxPoolNd<2>;
template class AdaptiveMaxPoolNd<3>;

}  // namespace mytorch::nn
