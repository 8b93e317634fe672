// Resizing and rearranging of planes.
#include <cmath>
#include <optional>
#include <vector>

#include "mytorch/nn/functional.h"
#include "mytorch/ops/adaptive_avg_pool1d.h"
#include "mytorch/ops/adaptive_avg_pool2d.h"
#include "mytorch/ops/adaptive_avg_pool3d.h"
#include "mytorch/ops/affine_grid_generator.h"
#include "mytorch/ops/channel_shuffle.h"
#include "mytorch/ops/col2im.h"
#include "mytorch/ops/grid_sampler.h"
#include "mytorch/ops/im2col.h"
#include "mytorch/ops/pixel_shuffle.h"
#include "mytorch/ops/pixel_unshuffle.h"
#include "mytorch/ops/upsample_bicubic2d.h"
#include "mytorch/ops/upsample_bicubic2d_aa.h"
#include "mytorch/ops/upsample_bilinear2d.h"
#include "mytorch/ops/upsample_bilinear2d_aa.h"
#include "mytorch/ops/upsample_linear1d.h"
#include "mytorch/ops/upsample_nearest1d.h"
#include "mytorch/ops/upsample_nearest2d.h"
#include "mytorch/ops/upsample_nearest3d.h"
#include "mytorch/ops/upsample_nearest_exact1d.h"
#include "mytorch/ops/upsample_nearest_exact2d.h"
#include "mytorch/ops/upsample_nearest_exact3d.h"
#include "mytorch/ops/upsample_trilinear3d.h"
#include "nn/functional/named.h"
#include "nn/functional/options.h"

namespace mytorch::nn::functional {
namespace {

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
  if (options.antialias && mode != InterpolateMode::kBilinear &&
      mode != InterpolateMode::kBicubic) {
    fail(ErrorCode::kValue, "[", kInterpolate, "] mode \"", name_of(mode),
         "\" takes no antialias: use \"bilinear\" or \"bicubic\"");
  }
  return named(kInterpolate, [&] {
    std::vector<int64_t> out;
    std::optional<double> scales[3];
    for (int64_t i = 0; i < dims; ++i) {
      const int64_t in = input.size(i + 2);
      if (factor.empty()) {
        out.push_back(one_of_each(size, i, dims, "size"));
      } else {
        const double scale = one_of_each(factor, i, dims, "scale_factor");
        const double exact = std::floor(static_cast<double>(in) * scale);
        if (!(exact >= 1 && exact < 9e15)) {
          fail(ErrorCode::kValue, "[", kInterpolate, "] scale_factor ", scale, " of size ", in,
               " gives no size");
        }
        out.push_back(static_cast<int64_t>(exact));
        scales[i] = scale;
      }
      if (in < 1 || out.back() < 1) {
        fail(ErrorCode::kShape, "[", kInterpolate, "] input ", shape_str(input.sizes()),
             " cannot be resized to size ", out.back(), ": sizes must be positive");
      }
      check_index_count(kInterpolate, out.back());
    }
    const auto& [a, b, c] = scales;
    const bool align = options.align_corners;
    switch (mode) {
      case InterpolateMode::kNearest:
        return dims == 1   ? mytorch::upsample_nearest1d(input, out, a)
               : dims == 2 ? mytorch::upsample_nearest2d(input, out, a, b)
                           : mytorch::upsample_nearest3d(input, out, a, b, c);
      case InterpolateMode::kNearestExact:
        return dims == 1   ? mytorch::upsample_nearest_exact1d(input, out, a)
               : dims == 2 ? mytorch::upsample_nearest_exact2d(input, out, a, b)
                           : mytorch::upsample_nearest_exact3d(input, out, a, b, c);
      case InterpolateMode::kLinear:
        return mytorch::upsample_linear1d(input, out, align, a);
      case InterpolateMode::kBilinear:
        return options.antialias ? mytorch::upsample_bilinear2d_aa(input, out, align, a, b)
                                 : mytorch::upsample_bilinear2d(input, out, align, a, b);
      case InterpolateMode::kTrilinear:
        return mytorch::upsample_trilinear3d(input, out, align, a, b, c);
      case InterpolateMode::kBicubic:
        return options.antialias ? mytorch::upsample_bicubic2d_aa(input, out, align, a, b)
                                 : mytorch::upsample_bicubic2d(input, out, align, a, b);
      case InterpolateMode::kArea:
        break;
    }
    if (dims == 1) return mytorch::adaptive_avg_pool1d(input, out);
    if (dims == 2) return mytorch::adaptive_avg_pool2d(input, out);
    return mytorch::adaptive_avg_pool3d(input, out);
  });
}

Tensor grid_sample(const Tensor& input, const Tensor& grid, const GridSampleArgs& options) {
  return named("grid_sample", [&] {
    return mytorch::grid_sampler(input, grid, static_cast<int64_t>(GridSampleMode(options.mode)),
                                 static_cast<int64_t>(GridPadding(options.padding_mode)),
                                 options.align_corners);
  });
}

Tensor affine_grid(const Tensor& theta, IntList size, bool align_corners) {
  return named("affine_grid",
               [&] { return mytorch::affine_grid_generator(theta, size, align_corners); });
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
