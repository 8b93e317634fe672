// Pooling functions.
#include <optional>
#include <tuple>

#include "mytorch/nn/functional.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/adaptive_avg_pool3d.h"
#include "mytorch/ops/adaptive_max_pool1d.h"
#include "mytorch/ops/adaptive_max_pool2d.h"
#include "mytorch/ops/adaptive_max_pool3d.h"
#include "mytorch/ops/avg_pool1d.h"
#include "mytorch/ops/avg_pool2d.h"
#include "mytorch/ops/avg_pool3d.h"
#include "mytorch/ops/max_pool1d.h"
#include "mytorch/ops/max_pool2d.h"
#include "mytorch/ops/max_pool3d.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/pow.h"
#include "mytorch/ops/sign.h"
#include "nn/functional/named.h"
#include "nn/functional/options.h"

namespace mytorch::nn::functional {
namespace {

template <size_t n>
Tensor lp_pool(const char* op, const Tensor& input, double norm_type, const Sizes<n>& kernel_size,
               const LPPoolArgs<n>& options) {
  return named(op, [&] {
    double count = 1;
    for (size_t i = 0; i < n; ++i) count *= static_cast<double>(kernel_size[i]);
    const Tensor means =
        avg_pool(pow(input, norm_type), kernel_size,
                 AvgPoolArgs<n>{.stride = options.stride, .ceil_mode = options.ceil_mode});
    return pow(mul(mul(sign(means), relu(abs(means))), count), 1 / norm_type);
  });
}

}  // namespace

template <size_t n>
Tensor max_pool(const Tensor& input, const Sizes<n>& kernel_size, const MaxPoolArgs<n>& options) {
  const Sizes<n> stride = options.stride.value_or(kernel_size);
  const Sizes<n>&p = options.padding, &d = options.dilation;
  if constexpr (n == 1) {
    return mytorch::max_pool1d(input, kernel_size, stride, p, d, options.ceil_mode);
  } else if constexpr (n == 2) {
    return mytorch::max_pool2d(input, kernel_size, stride, p, d, options.ceil_mode);
  } else {
    return mytorch::max_pool3d(input, kernel_size, stride, p, d, options.ceil_mode);
  }
}

template <size_t n>
Tensor avg_pool(const Tensor& input, const Sizes<n>& kernel_size, const AvgPoolArgs<n>& options) {
  const Sizes<n> stride = options.stride.value_or(kernel_size);
  const Sizes<n>& p = options.padding;
  const bool ceil = options.ceil_mode, pads = options.count_include_pad;
  const std::optional<int64_t> divisor = options.divisor_override;
  if constexpr (n == 1) {
    if (divisor.has_value()) {
      fail(ErrorCode::kUnsupported, "[avg_pool1d] takes no divisor_override");
    }
    return mytorch::avg_pool1d(input, kernel_size, stride, p, ceil, pads);
  } else if constexpr (n == 2) {
    return mytorch::avg_pool2d(input, kernel_size, stride, p, ceil, pads, divisor);
  } else {
    return mytorch::avg_pool3d(input, kernel_size, stride, p, ceil, pads, divisor);
  }
}

template Tensor max_pool(const Tensor&, const Sizes<1>&, const MaxPoolArgs<1>&);
template Tensor max_pool(const Tensor&, const Sizes<2>&, const MaxPoolArgs<2>&);
template Tensor max_pool(const Tensor&, const Sizes<3>&, const MaxPoolArgs<3>&);
template Tensor avg_pool(const Tensor&, const Sizes<1>&, const AvgPoolArgs<1>&);
template Tensor avg_pool(const Tensor&, const Sizes<2>&, const AvgPoolArgs<2>&);
template Tensor avg_pool(const Tensor&, const Sizes<3>&, const AvgPoolArgs<3>&);

Tensor lp_pool1d(const Tensor& input, double norm_type, Sizes<1> kernel_size,
                 const LPPoolArgs<1>& options) {
  return lp_pool("lp_pool1d", input, norm_type, kernel_size, options);
}

Tensor lp_pool2d(const Tensor& input, double norm_type, Sizes<2> kernel_size,
                 const LPPoolArgs<2>& options) {
  return lp_pool("lp_pool2d", input, norm_type, kernel_size, options);
}

Tensor lp_pool3d(const Tensor& input, double norm_type, Sizes<3> kernel_size,
                 const LPPoolArgs<3>& options) {
  return lp_pool("lp_pool3d", input, norm_type, kernel_size, options);
}

Tensor adaptive_avg_pool3d(const Tensor& input, Sizes<3> output_size) {
  return mytorch::adaptive_avg_pool3d(input, output_size);
}

std::tuple<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& input,
                                                            Sizes<1> output_size) {
  return mytorch::adaptive_max_pool1d(input, output_size);
}

Tensor adaptive_max_pool1d(const Tensor& input, Sizes<1> output_size) {
  return std::get<0>(adaptive_max_pool1d_with_indices(input, output_size));
}

std::tuple<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& input,
                                                            Sizes<2> output_size) {
  return mytorch::adaptive_max_pool2d(input, output_size);
}

Tensor adaptive_max_pool2d(const Tensor& input, Sizes<2> output_size) {
  return std::get<0>(adaptive_max_pool2d_with_indices(input, output_size));
}

std::tuple<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& input,
                                                            Sizes<3> output_size) {
  return mytorch::adaptive_max_pool3d(input, output_size);
}

Tensor adaptive_max_pool3d(const Tensor& input, Sizes<3> output_size) {
  return std::get<0>(adaptive_max_pool3d_with_indices(input, output_size));
}

}  // namespace mytorch::nn::functional
