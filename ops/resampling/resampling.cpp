// Resizing of planes, and sampling at given points.
#include <algorithm>
#include <cmath>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/clamp.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/floor.h"
#include "mytorch/ops/fmod.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/linspace.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/remainder.h"
#include "mytorch/ops/round.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/check.h"
#include "ops/creation.h"
#include "ops/geometry.h"
#include "ops/precision.h"

namespace mytorch::composite {
namespace {

enum class Filter { kNearest, kNearestExact, kLinear, kCubic };

// How one dimension is resized. `step` is the distance of neighboring elements of the result in
// the input.
struct Axis {
  Filter filter;
  int64_t in, out;
  double step;
  bool align_corners, antialias;
};

// The weights of cubic convolution (Keys, 1981) at a distance.
double cubic(double x, double a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

constexpr double kCubic = -0.75, kCubicAntialias = -0.5;

// A number of elements of the input, with weights, for each element of the result: (taps, out).
struct Taps {
  Tensor index, weight;
};

Taps make_taps(const Axis& axis, const char* op) {
  const bool nearest = axis.filter == Filter::kNearest || axis.filter == Filter::kNearestExact;
  const double reach = axis.filter == Filter::kCubic ? 2 : 1;
  const double support = reach * std::max(axis.step, 1.0);
  int64_t count = nearest ? 1 : axis.filter == Filter::kCubic ? 4 : 2;
  if (axis.antialias) {
    count =
        static_cast<int64_t>(std::min(static_cast<double>(axis.in), std::ceil(support) * 2 + 1));
  }
  constexpr int64_t kMost = int64_t{1} << 28;
  check_value(Wide{count} * axis.out <= kMost, op, "resizing ", axis.in, " elements to ", axis.out,
              " takes more than ", kMost, " weights");
  Taps taps{empty_for_values({count, axis.out}, kInt64),
            empty_for_values({count, axis.out}, kFloat64)};
  auto* index = taps.index.data<int64_t>();
  auto* weight = taps.weight.data<double>();
  const auto last = static_cast<double>(axis.in - 1);
  for (int64_t i = 0; i < axis.out; ++i) {
    const auto set = [&](int64_t tap, double at, double w) {
      // Compares as double, because the position may exceed int64, or be NaN.
      index[tap * axis.out + i] = static_cast<int64_t>(at > 0 ? std::min(at, last) : 0);
      weight[tap * axis.out + i] = w;
    };
    const auto center = static_cast<double>(i);
    if (nearest) {  // in float, as in ATen, so that both choose the same elements
      const float at = static_cast<float>(i) + (axis.filter == Filter::kNearestExact ? 0.5f : 0);
      set(0, std::floor(at * static_cast<float>(axis.step)), 1);
    } else if (axis.antialias) {
      const double scale = std::max(axis.step, 1.0), middle = axis.step * (center + 0.5);
      const double first = std::max(std::trunc(middle - support + 0.5), 0.0);
      const double end = std::min(std::trunc(middle + support + 0.5), static_cast<double>(axis.in));
      const auto filter = [&](int64_t tap) {
        if (first + static_cast<double>(tap) >= end) return 0.0;
        const double x = (first + static_cast<double>(tap) - middle + 0.5) / scale;
        return axis.filter == Filter::kCubic ? cubic(x, kCubicAntialias)
                                             : std::max(1 - std::abs(x), 0.0);
      };
      double total = 0;
      for (int64_t tap = 0; tap < count; ++tap) total += filter(tap);
      for (int64_t tap = 0; tap < count; ++tap) {
        set(tap, first + static_cast<double>(tap), total == 0 ? 0 : filter(tap) / total);
      }
    } else {
      double at = axis.align_corners ? axis.step * center : axis.step * (center + 0.5) - 0.5;
      if (axis.filter == Filter::kLinear) at = std::max(at, 0.0);
      const double first = std::floor(at), part = at - first;
      if (axis.filter == Filter::kLinear) {
        set(0, first, 1 - part);
        set(1, first + 1, part);
      } else {
        for (int64_t tap = 0; tap < 4; ++tap) {
          const double offset = static_cast<double>(tap) - 1;
          set(tap, first + offset, cubic(offset - part, kCubic));
        }
      }
    }
  }
  return taps;
}

Tensor resize_dim(const Tensor& x, int64_t dim, const Axis& axis, const char* op) {
  if (axis.in == axis.out && (axis.align_corners || axis.step == 1)) return x;
  const Taps taps = make_taps(axis, op);
  const Tensor index = taps.index.to(x.device());
  const int64_t count = index.size(0);
  if (count == 1 && !axis.antialias) return x.index_select(dim, index.select(0, 0));
  Dims along(x.dim() - dim, 1);
  along[0] = axis.out;
  const Tensor weight = taps.weight.to(x.dtype()).to(x.device());
  Tensor result;
  for (int64_t tap = 0; tap < count; ++tap) {
    const Tensor part =
        x.index_select(dim, index.select(0, tap)) * weight.select(0, tap).reshape(as_list(along));
    result = result.defined() ? result + part : part;
  }
  return result;
}

using Scales = std::initializer_list<std::optional<double>>;

Tensor resize(const Tensor& self, IntList output_size, Filter filter, bool align_corners,
              bool antialias, Scales scales, const char* op) {
  const auto n = static_cast<int64_t>(scales.size());
  const Dims out = geometry::for_each_dim(output_size, n, op, "output_size");
  bool fits = self.dim() == n + 2;
  for (int64_t i = 0; i < n; ++i) fits = fits && self.size(i + 2) > 0 && out[i] > 0;
  check_shape(fits, op, "cannot resize input of shape ", self.sizes(), " to ", as_list(out),
              ": the input needs ", n + 2, " dimensions, and no size is 0");
  const bool nearest = filter == Filter::kNearest || filter == Filter::kNearestExact;
  if (!nearest) check_floating(self, "self", op);
  Tensor result = nearest ? self : widened(self);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t in = self.size(i + 2);
    const std::optional<double> scale = scales.begin()[i];
    double step = static_cast<double>(in) / static_cast<double>(out[i]);
    if (align_corners) {
      step = out[i] > 1 ? static_cast<double>(in - 1) / static_cast<double>(out[i] - 1) : 0;
    } else if (scale.has_value() && *scale > 0) {
      step = 1 / *scale;
    }
    result = resize_dim(result, i + 2, {filter, in, out[i], step, align_corners, antialias}, op);
  }
  result = result.to(self.dtype());
  return result.is_same(self) ? self.clone() : result;
}

// ---- sampling at points ----

enum class Padding { kZeros, kBorder, kReflection };

struct Sampler {
  Padding padding;
  bool align_corners;

  // Returns where a coordinate in [-1, 1] lies between the elements of a dimension. A position far
  // outside is moved to one that no filter can tell from it: its distance from whole positions
  // would otherwise be lost, or NaN where it is infinite. NaN counts as -1, as ATen documents.
  Tensor position(const Tensor& given, int64_t size) const {
    const Tensor x = mytorch::where(isnan(given.detach()), -1, given);
    const auto n = static_cast<double>(size);
    const auto of = [&](const Tensor& at) {
      return align_corners ? (at + 1) * ((n - 1) / 2) : ((at + 1) * n - 1) / 2;
    };
    // Reflections repeat with a period of 4 in coordinates. Infinity counts as a large number.
    if (padding == Padding::kReflection)
      return of(mytorch::fmod(mytorch::clamp(x, -1e30, 1e30), 4));
    constexpr double kReach = 3;  // of the cubic filter, rounded up
    return mytorch::clamp(of(x), -kReach, n - 1 + kReach);
  }
  // Returns positions outside of the dimension as `padding` places them.
  Tensor placed(const Tensor& x, int64_t size) const {
    if (padding == Padding::kZeros) return x;
    const auto n = static_cast<double>(size);
    Tensor inside = x;
    if (padding == Padding::kReflection) {
      const double low = align_corners ? 0 : -0.5, span = align_corners ? n - 1 : n;
      if (span == 0) {
        inside = mytorch::zeros_like(x);
      } else {  // a triangle wave of period 2 * span
        const Tensor phase = mytorch::remainder(x - low, 2 * span);
        inside = span - mytorch::abs(phase - span) + low;
      }
    }
    // As in ATen, a point at the border gets no gradient.
    const Tensor within = (inside.detach() > 0).logical_and(inside.detach() < n - 1);
    return mytorch::where(within, inside, mytorch::clamp(inside.detach(), 0, n - 1));
  }
};

// The elements (N, C, P) of `planes` (N, C, ...) at whole positions (N, P) of each dimension, the
// last one first, and which of these are inside, (N, 1, P); 0 outside.
Tensors<2> elements_at(const Tensor& planes, const std::vector<Tensor>& positions) {
  const int64_t n = planes.size(0), c = planes.size(1);
  Tensor index, valid;
  int64_t stride = 1;
  for (size_t i = 0; i < positions.size(); ++i) {
    const int64_t size = planes.size(-1 - static_cast<int64_t>(i));
    const Tensor at = positions[i].detach();
    const Tensor inside = (at >= 0).logical_and(at <= static_cast<double>(size - 1));
    const Tensor part = mytorch::where(inside, at, 0).to(kInt64) * stride;
    index = index.defined() ? index + part : part;
    valid = valid.defined() ? valid.logical_and(inside) : inside;
    stride *= size;
  }
  const int64_t points = index.size(1);
  const Tensor where_to = mytorch::where(valid, index, 0).unsqueeze(1).expand({n, c, points});
  const Tensor values = planes.flatten(2).gather(2, where_to.contiguous());
  valid = valid.unsqueeze(1);
  return {mytorch::where(valid, values, 0), valid};
}

Tensor sampled(const Tensor& planes, const std::vector<Tensor>& coordinates, int64_t mode,
               const Sampler& sampler) {
  const size_t n = coordinates.size();
  std::vector<Tensor> at(n);
  for (size_t i = 0; i < n; ++i) {
    const int64_t size = planes.size(-1 - static_cast<int64_t>(i));
    at[i] = sampler.position(coordinates[i], size);
    if (mode != 2) at[i] = sampler.placed(at[i], size);
  }
  if (mode == 1) {
    for (Tensor& x : at) x = mytorch::round(x.detach());
    return std::get<0>(elements_at(planes, at));
  }
  const int64_t taps = mode == 2 ? 4 : 2;
  std::vector<Tensor> first(n), part(n);
  for (size_t i = 0; i < n; ++i) {
    first[i] = mytorch::floor(at[i].detach());
    part[i] = at[i] - first[i];
  }
  const auto weight = [&](const Tensor& t, int64_t tap) -> Tensor {
    if (mode == 0) return tap == 0 ? 1 - t : t;
    const double a = kCubic;
    const Tensor x = tap == 0 ? t + 1 : tap == 1 ? t : tap == 2 ? 1 - t : 2 - t;
    if (tap == 1 || tap == 2) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  };
  int64_t total = 1;
  for (size_t i = 0; i < n; ++i) total *= taps;
  Tensor result;
  for (int64_t tap = 0; tap < total; ++tap) {
    std::vector<Tensor> positions(n);
    Tensor w;
    int64_t rest = tap;
    for (size_t i = 0; i < n; ++i) {
      const int64_t own = rest % taps;
      rest /= taps;
      positions[i] = first[i] + static_cast<double>(mode == 2 ? own - 1 : own);
      if (mode == 2) {
        positions[i] = sampler.placed(positions[i], planes.size(-1 - static_cast<int64_t>(i)));
        if (sampler.padding == Padding::kReflection) positions[i] = mytorch::round(positions[i]);
      }
      const Tensor factor = weight(part[i], own);
      w = w.defined() ? w * factor : factor;
    }
    const auto [elements, valid] = elements_at(planes, positions);
    const Tensor value = elements * mytorch::where(valid, w.unsqueeze(1), 0);
    result = result.defined() ? result + value : value;
  }
  return result;
}

Tensor sample_grid(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding,
                   bool align_corners, int64_t n, const char* op) {
  check_floating(input, "input", op);
  check_same_type(input, "input", grid, "grid", op);
  bool fits = input.dim() == n + 2 && grid.dim() == n + 2 && grid.size(-1) == n &&
              grid.size(0) == input.size(0);
  for (int64_t i = 0; fits && i < n; ++i) fits = input.size(i + 2) > 0;
  check_shape(fits, op, "input ", input.sizes(), " and grid ", grid.sizes(), " are not (N, C, ",
              n == 2 ? "H, W) and (N, OH, OW, 2)" : "D, H, W) and (N, OD, OH, OW, 3)",
              " with planes that are not empty");
  check_value(mode >= 0 && mode <= (n == 2 ? 2 : 1), op, "interpolation_mode is ", mode,
              n == 2 ? ": give 0 (bilinear), 1 (nearest) or 2 (bicubic)"
                     : ": give 0 (bilinear) or 1 (nearest)");
  check_value(padding >= 0 && padding <= 2, op, "padding_mode is ", padding,
              ": give 0 (zeros), 1 (border) or 2 (reflection)");
  Dims sizes = {input.size(0), input.size(1)};
  for (int64_t i = 0; i < n; ++i) sizes.push_back(grid.size(i + 1));
  checked_product(as_list(sizes), op);
  const Tensor points = widened(grid).flatten(1, -2);
  std::vector<Tensor> coordinates;
  for (int64_t i = 0; i < n; ++i) coordinates.push_back(points.select(2, i));
  const Sampler sampler{static_cast<Padding>(padding), align_corners};
  return sampled(widened(input), coordinates, mode, sampler)
      .reshape(as_list(sizes))
      .to(input.dtype());
}

}  // namespace

Tensor upsample_nearest1d(const Tensor& self, IntList output_size, std::optional<double> scales) {
  return resize(self, output_size, Filter::kNearest, false, false, {scales}, "upsample_nearest1d");
}

Tensor upsample_nearest2d(const Tensor& self, IntList output_size, std::optional<double> scales_h,
                          std::optional<double> scales_w) {
  return resize(self, output_size, Filter::kNearest, false, false, {scales_h, scales_w},
                "upsample_nearest2d");
}

Tensor upsample_nearest3d(const Tensor& self, IntList output_size, std::optional<double> scales_d,
                          std::optional<double> scales_h, std::optional<double> scales_w) {
  return resize(self, output_size, Filter::kNearest, false, false, {scales_d, scales_h, scales_w},
                "upsample_nearest3d");
}

Tensor upsample_nearest_exact1d(const Tensor& self, IntList output_size,
                                std::optional<double> scales) {
  return resize(self, output_size, Filter::kNearestExact, false, false, {scales},
                "upsample_nearest_exact1d");
}

Tensor upsample_nearest_exact2d(const Tensor& self, IntList output_size,
                                std::optional<double> scales_h, std::optional<double> scales_w) {
  return resize(self, output_size, Filter::kNearestExact, false, false, {scales_h, scales_w},
                "upsample_nearest_exact2d");
}

Tensor upsample_nearest_exact3d(const Tensor& self, IntList output_size,
                                std::optional<double> scales_d, std::optional<double> scales_h,
                                std::optional<double> scales_w) {
  return resize(self, output_size, Filter::kNearestExact, false, false,
                {scales_d, scales_h, scales_w}, "upsample_nearest_exact3d");
}

Tensor upsample_linear1d(const Tensor& self, IntList output_size, bool align_corners,
                         std::optional<double> scales) {
  return resize(self, output_size, Filter::kLinear, align_corners, false, {scales},
                "upsample_linear1d");
}

Tensor upsample_bilinear2d(const Tensor& self, IntList output_size, bool align_corners,
                           std::optional<double> scales_h, std::optional<double> scales_w) {
  return resize(self, output_size, Filter::kLinear, align_corners, false, {scales_h, scales_w},
                "upsample_bilinear2d");
}

Tensor upsample_bilinear2d_aa(const Tensor& self, IntList output_size, bool align_corners,
                              std::optional<double> scales_h, std::optional<double> scales_w) {
  return resize(self, output_size, Filter::kLinear, align_corners, true, {scales_h, scales_w},
                "upsample_bilinear2d_aa");
}

Tensor upsample_trilinear3d(const Tensor& self, IntList output_size, bool align_corners,
                            std::optional<double> scales_d, std::optional<double> scales_h,
                            std::optional<double> scales_w) {
  return resize(self, output_size, Filter::kLinear, align_corners, false,
                {scales_d, scales_h, scales_w}, "upsample_trilinear3d");
}

Tensor upsample_bicubic2d(const Tensor& self, IntList output_size, bool align_corners,
                          std::optional<double> scales_h, std::optional<double> scales_w) {
  return resize(self, output_size, Filter::kCubic, align_corners, false, {scales_h, scales_w},
                "upsample_bicubic2d");
}

Tensor upsample_bicubic2d_aa(const Tensor& self, IntList output_size, bool align_corners,
                             std::optional<double> scales_h, std::optional<double> scales_w) {
  return resize(self, output_size, Filter::kCubic, align_corners, true, {scales_h, scales_w},
                "upsample_bicubic2d_aa");
}

Tensor grid_sampler_2d(const Tensor& input, const Tensor& grid, int64_t interpolation_mode,
                       int64_t padding_mode, bool align_corners) {
  return sample_grid(input, grid, interpolation_mode, padding_mode, align_corners, 2,
                     "grid_sampler_2d");
}

Tensor grid_sampler_3d(const Tensor& input, const Tensor& grid, int64_t interpolation_mode,
                       int64_t padding_mode, bool align_corners) {
  return sample_grid(input, grid, interpolation_mode, padding_mode, align_corners, 3,
                     "grid_sampler_3d");
}

Tensor grid_sampler(const Tensor& input, const Tensor& grid, int64_t interpolation_mode,
                    int64_t padding_mode, bool align_corners) {
  return sample_grid(input, grid, interpolation_mode, padding_mode, align_corners,
                     input.dim() == 5 ? 3 : 2, "grid_sampler");
}

Tensor affine_grid_generator(const Tensor& theta, IntList size, bool align_corners) {
  const char* op = "affine_grid_generator";
  check_floating(theta, "theta", op);
  const auto n = static_cast<int64_t>(size.size()) - 2;
  check_shape((n == 2 || n == 3) && theta.dim() == 3 && theta.size(0) == size[0] &&
                  theta.size(1) == n && theta.size(2) == n + 1,
              op, "theta ", theta.sizes(), " and size ", size,
              " are not (N, 2, 3) and (N, C, H, W), nor (N, 3, 4) and (N, C, D, H, W)");
  for (const int64_t s : size) check_value(s >= 1, op, "size ", size, " is not positive");
  const Dims plane(size.begin() + 2, size.end());
  checked(Wide{checked_product(as_list(plane), op)} * (n + 1) * size[0], op,
          "the size of the grid");
  std::vector<Tensor> parts;
  for (int64_t i = n - 1; i >= 0; --i) {  // x is the last dimension
    const int64_t s = plane[i];
    const double end = s == 1 ? 0 : align_corners ? 1 : static_cast<double>(s - 1) / s;
    Dims along(n, 1);
    along[i] = s;
    parts.push_back(mytorch::linspace(-end, end, s, theta.dtype(), theta.device())
                        .reshape(as_list(along))
                        .expand(as_list(plane)));
  }
  parts.push_back(mytorch::ones(as_list(plane), theta.dtype(), theta.device()));
  const Tensor base = mytorch::stack(parts, -1).reshape({1, -1, n + 1}).expand({size[0], -1, -1});
  Dims sizes = {size[0]};
  sizes.insert(sizes.end(), plane.begin(), plane.end());
  sizes.push_back(n);
  return mytorch::matmul(base, theta.mT()).reshape(as_list(sizes));
}

}  // namespace mytorch::composite
