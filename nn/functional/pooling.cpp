// Pooling that composes the operators for one and two dimensions.
#include <algorithm>
#include <cmath>
#include <vector>

#include "mytorch/nn/functional.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/index_select.h"
#include "mytorch/ops/max.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/pow.h"
#include "mytorch/ops/sign.h"
#include "nn/functional/named.h"
#include "nn/functional/options.h"

namespace mytorch::nn::functional {
namespace {

// Applies a 2-dim pooling to the last two dimensions of (..., D, H, W), then one to D. A window is
// the product of its sides, so maxima, sums and means with any padding are those of both in turn.
template <class Plane, class Depth>
Tensor pool_planes(const Tensor& input, const Plane& plane, const Depth& depth) {
  if (input.dim() != 4 && input.dim() != 5) {
    fail(ErrorCode::kShape, "[pool] input has shape ", shape_str(input.sizes()),
         ": it must have 5 dimensions, or 4 without a batch");
  }
  const int64_t lead = input.dim() == 5 ? input.size(0) * input.size(1) : input.size(0);
  const int64_t d = input.size(-3);
  const Tensor planes = plane(input.reshape({lead * d, input.size(-2), input.size(-1)}));
  const int64_t h = planes.size(1), w = planes.size(2);
  const Tensor pooled = depth(planes.reshape({lead, d, h * w}), h * w);
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes.resize(sizes.size() - 3);
  sizes.insert(sizes.end(), {pooled.size(1), h, w});
  return pooled.reshape(sizes);
}

// Takes the maximum over `out` windows of dimension `dim` that divide it as evenly as possible.
Tensor adaptive_max(const Tensor& x, int64_t dim, int64_t out) {
  const int64_t size = x.size(dim);
  if (out < 0) fail(ErrorCode::kValue, "[pool] output_size ", out, " is negative");
  if (out == 0) return x.narrow(dim, 0, 0).clone();
  check_index_count("pool", size);
  check_index_count("pool", out);
  if (size == 0) fail(ErrorCode::kShape, "[pool] input ", shape_str(x.sizes()), " is empty");
  const auto begin = [&](int64_t i) { return i * size / out; };
  const auto end = [&](int64_t i) { return ((i + 1) * size + out - 1) / out; };
  int64_t width = 0;
  for (int64_t i = 0; i < out; ++i) width = std::max(width, end(i) - begin(i));
  std::vector<int64_t> index;
  for (int64_t i = 0; i < out; ++i) {
    for (int64_t j = 0; j < width; ++j) index.push_back(std::min(begin(i) + j, end(i) - 1));
  }
  const Tensor windows = x.index_select(dim, tensor(index).to(x.device()));
  return std::get<0>(windows.unflatten(dim, {out, width}).max(dim < 0 ? dim : dim + 1));
}

template <size_t n>
Tensor adaptive_max_pool(const char* op, const Tensor& input, const Sizes<n>& output_size) {
  return named(op, [&] {
    const int64_t dims = static_cast<int64_t>(n);
    if (input.dim() != dims + 1 && input.dim() != dims + 2) {
      fail(ErrorCode::kShape, "[", op, "] input has shape ", shape_str(input.sizes()),
           ": it must have ", dims + 2, " dimensions, or ", dims + 1, " without a batch");
    }
    Tensor result = input;  // the last dimension first: ties go to the first element, row-major
    for (size_t i = n; i-- > 0;) {
      result = adaptive_max(result, static_cast<int64_t>(i) - dims, output_size[i]);
    }
    return result;
  });
}

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
    const Sizes<3>&k = kernel_size, &s = stride;
    const bool ceil = options.ceil_mode;
    return named("max_pool3d", [&] {
      return pool_planes(
          input,
          [&](const Tensor& planes) {
            return mytorch::max_pool2d(planes, {k[1], k[2]}, {s[1], s[2]}, {p[1], p[2]},
                                       {d[1], d[2]}, ceil);
          },
          [&](const Tensor& lines, int64_t) {
            return mytorch::max_pool2d(lines, {k[0], 1}, {s[0], 1}, {p[0], 0}, {d[0], 1}, ceil);
          });
    });
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
    const Sizes<3>&k = kernel_size, &s = stride;
    const std::optional<int64_t> sum = divisor.has_value() ? std::optional<int64_t>(1) : divisor;
    return named("avg_pool3d", [&] {
      return pool_planes(
          input,
          [&](const Tensor& planes) {
            return mytorch::avg_pool2d(planes, {k[1], k[2]}, {s[1], s[2]}, {p[1], p[2]}, ceil, pads,
                                       sum);
          },
          [&](const Tensor& lines, int64_t) {
            return mytorch::avg_pool2d(lines, {k[0], 1}, {s[0], 1}, {p[0], 0}, ceil, pads, divisor);
          });
    });
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
  return named("adaptive_avg_pool3d", [&] {
    return pool_planes(
        input,
        [&](const Tensor& planes) {
          return mytorch::adaptive_avg_pool2d(planes, {output_size[1], output_size[2]});
        },
        [&](const Tensor& lines, int64_t area) {
          return mytorch::adaptive_avg_pool2d(lines, {output_size[0], area});
        });
  });
}

Tensor adaptive_max_pool1d(const Tensor& input, Sizes<1> output_size) {
  return adaptive_max_pool("adaptive_max_pool1d", input, output_size);
}

Tensor adaptive_max_pool2d(const Tensor& input, Sizes<2> output_size) {
  return adaptive_max_pool("adaptive_max_pool2d", input, output_size);
}

Tensor adaptive_max_pool3d(const Tensor& input, Sizes<3> output_size) {
  return adaptive_max_pool("adaptive_max_pool3d", input, output_size);
}

}  // namespace mytorch::nn::functional
