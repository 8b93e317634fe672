// Resizing and rearranging of planes.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "mytorch/nn/functional.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/channel_shuffle.h"
#include "mytorch/ops/col2im.h"
#include "mytorch/ops/im2col.h"
#include "mytorch/ops/index_select.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/pixel_shuffle.h"
#include "mytorch/ops/pixel_unshuffle.h"
#include "nn/functional/named.h"
#include "nn/functional/options.h"

namespace mytorch::nn::functional {
namespace {

// A number of elements of a dimension, with weights, for each element of the result.
struct Taps {
  std::vector<std::vector<int64_t>> indices;  // of each tap
  std::vector<std::vector<double>> weights;
};

// The weights of cubic convolution (Keys, 1981, with a = -0.75) for a fraction t of the way from
// the second of four points to the third.
std::array<double, 4> cubic_weights(double t) {
  constexpr double a = -0.75;
  const auto near = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

// `step` is the distance of neighboring elements of the result in the input.
Taps make_taps(InterpolateMode mode, int64_t in, int64_t out, double step, bool align_corners) {
  const bool nearest = mode == InterpolateMode::kNearest || mode == InterpolateMode::kNearestExact;
  const bool cubic = mode == InterpolateMode::kBicubic;
  const size_t count = nearest ? 1 : cubic ? 4 : 2;
  Taps taps{std::vector<std::vector<int64_t>>(count), std::vector<std::vector<double>>(count)};
  for (int64_t i = 0; i < out; ++i) {
    const auto add_tap = [&](size_t tap, int64_t index, double weight) {
      taps.indices[tap].push_back(std::clamp<int64_t>(index, 0, in - 1));
      taps.weights[tap].push_back(weight);
    };
    if (nearest) {  // in float32, as PyTorch computes it
      const float at = static_cast<float>(i) + (mode == InterpolateMode::kNearestExact ? 0.5f : 0);
      add_tap(0, static_cast<int64_t>(std::floor(at * static_cast<float>(step))), 1);
      continue;
    }
    const double center = static_cast<double>(i);
    double at = align_corners ? step * center : step * (center + 0.5) - 0.5;
    if (!cubic) at = std::max(at, 0.0);
    const int64_t first = static_cast<int64_t>(std::floor(at));
    const double part = at - static_cast<double>(first);
    if (cubic) {
      const std::array<double, 4> weights = cubic_weights(part);
      for (size_t tap = 0; tap < 4; ++tap) {
        add_tap(tap, first - 1 + static_cast<int64_t>(tap), weights[tap]);
      }
    } else {
      add_tap(0, first, 1 - part);
      add_tap(1, first + 1, part);
    }
  }
  return taps;
}

Tensor apply_taps(const Tensor& x, int64_t dim, const Taps& taps) {
  Tensor result;
  for (size_t tap = 0; tap < taps.indices.size(); ++tap) {
    Tensor part = x.index_select(dim, tensor(taps.indices[tap]).to(x.device()));
    if (taps.indices.size() == 1) return part;
    std::vector<int64_t> sizes(static_cast<size_t>(x.dim() - dim), 1);
    sizes[0] = -1;
    part = mul(part, tensor(taps.weights[tap], x.dtype()).to(x.device()).reshape(sizes));
    result = result.defined() ? add(result, part) : part;
  }
  return result;
}

// Returns the number of spatial dimensions that a mode takes, or 0 for any.
int64_t spatial_dims(InterpolateMode mode) {
  switch (mode) {
    case InterpolateMode::kLinear:
      return 1;
    case InterpolateMode::kBilinear:
    case InterpolateMode::kBicubic:
      return 2;
    case InterpolateMode::kTrilinear:
      return 3;
    default:
      return 0;
  }
}

constexpr const char* kInterpolate = "interpolate";

template <class T>
T one_of_each(const std::vector<T>& values, int64_t i, int64_t dims, const char* option) {
  if (values.size() != 1 && static_cast<int64_t>(values.size()) != dims) {
    fail(ErrorCode::kValue, "[", kInterpolate, "] ", option, " has ", values.size(),
         " values: give one, or one for each of ", dims, " spatial dimensions");
  }
  return values[values.size() == 1 ? 0 : static_cast<size_t>(i)];
}

}  // namespace

Tensor interpolate(const Tensor& input, const UpsampleArgs& options) {
  const InterpolateMode mode = options.mode;
  const int64_t dims = input.dim() - 2, wanted = spatial_dims(mode);
  const std::vector<int64_t>& size = options.size.values();
  const std::vector<double>& factor = options.scale_factor.values();
  if (dims < 1 || dims > 3 || (wanted != 0 && dims != wanted)) {
    fail(ErrorCode::kShape, "[", kInterpolate, "] input ", shape_str(input.sizes()),
         " does not have ", wanted == 0 ? "3 to 5" : absl::StrCat(wanted + 2),
         " dimensions, as mode \"", name_of(mode), "\" needs");
  }
  if (!input.is_floating_point() && mode != InterpolateMode::kNearest &&
      mode != InterpolateMode::kNearestExact) {
    fail(ErrorCode::kType, "[", kInterpolate, "] mode \"", name_of(mode),
         "\" needs a floating-point input, not ", dtype_name(input.dtype()));
  }
  if (size.empty() == factor.empty()) {
    fail(ErrorCode::kValue, "[", kInterpolate, "] give either size or scale_factor");
  }
  if (options.align_corners && wanted == 0) {
    fail(ErrorCode::kValue, "[", kInterpolate, "] mode \"", name_of(mode),
         "\" takes no align_corners");
  }
  return named(kInterpolate, [&] {
    std::vector<int64_t> out;
    std::vector<double> steps;
    for (int64_t i = 0; i < dims; ++i) {
      const int64_t in = input.size(i + 2);
      double step = 0;
      if (factor.empty()) {
        out.push_back(one_of_each(size, i, dims, "size"));
        step = static_cast<double>(in) / static_cast<double>(out.back());
      } else {
        const double scale = one_of_each(factor, i, dims, "scale_factor");
        const double exact = std::floor(static_cast<double>(in) * scale);
        if (!(exact >= 1 && exact < 9e15)) {
          fail(ErrorCode::kValue, "[", kInterpolate, "] scale_factor ", scale, " of size ", in,
               " gives no size");
        }
        out.push_back(static_cast<int64_t>(exact));
        step = 1 / scale;
      }
      if (in < 1 || out.back() < 1) {
        fail(ErrorCode::kShape, "[", kInterpolate, "] input ", shape_str(input.sizes()),
             " cannot be resized to size ", out.back(), ": sizes must be positive");
      }
      check_index_count(kInterpolate, out.back());
      if (options.align_corners) {
        step =
            out.back() > 1 ? static_cast<double>(in - 1) / static_cast<double>(out.back() - 1) : 0;
      }
      steps.push_back(step);
    }
    if (mode == InterpolateMode::kArea) {
      if (dims == 1) return mytorch::adaptive_avg_pool1d(input, out);
      if (dims == 2) return mytorch::adaptive_avg_pool2d(input, out);
      return adaptive_avg_pool3d(input, {out[0], out[1], out[2]});
    }
    const ScalarType dtype = input.dtype();
    const bool narrow = wanted != 0 && dtype != kFloat32 && dtype != kFloat64;
    Tensor result = narrow ? input.to(kFloat32) : input;
    for (int64_t i = 0; i < dims; ++i) {
      const int64_t in = input.size(i + 2);
      const size_t at = static_cast<size_t>(i);
      if (in == out[at] && (options.align_corners || steps[at] == 1)) continue;
      result =
          apply_taps(result, i + 2, make_taps(mode, in, out[at], steps[at], options.align_corners));
    }
    return narrow ? result.to(dtype) : result;
  });
}

Tensor pixel_shuffle(const Tensor& input, int64_t r) { return mytorch::pixel_shuffle(input, r); }

Tensor pixel_unshuffle(const Tensor& input, int64_t r) {
  return mytorch::pixel_unshuffle(input, r);
}

Tensor channel_shuffle(const Tensor& input, int64_t groups) {
  return mytorch::channel_shuffle(input, groups);
}

Tensor unfold(const Tensor& input, Sizes<2> kernel_size, const UnfoldArgs& options) {
  return named("unfold", [&] {
    return mytorch::im2col(input, kernel_size, options.dilation, options.padding, options.stride);
  });
}

Tensor fold(const Tensor& input, Sizes<2> output_size, Sizes<2> kernel_size,
            const FoldArgs& options) {
  return named("fold", [&] {
    return mytorch::col2im(input, output_size, kernel_size, options.dilation, options.padding,
                           options.stride);
  });
}

}  // namespace mytorch::nn::functional
