// Resizing and sampling of planes by the names of modes.
#include <array>
#include <cmath>
#include <string>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/adaptive_avg_pool1d.h"
#include "mytorch/ops/adaptive_avg_pool2d.h"
#include "mytorch/ops/adaptive_avg_pool3d.h"
#include "mytorch/ops/grid_sampler.h"
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
#include "ops/check.h"

namespace mytorch::composite {
namespace {

constexpr const char* kInterpolate = "interpolate";

struct Mode {
  const char* name;
  int64_t dims;  // spatial ones that it takes; 0: 1 to 3
  bool takes_integers;
  bool takes_corners;
};
constexpr Mode kModes[] = {{"nearest", 0, true, false}, {"nearest-exact", 0, true, false},
                           {"linear", 1, false, true},  {"bilinear", 2, false, true},
                           {"bicubic", 2, false, true}, {"trilinear", 3, false, true},
                           {"area", 0, false, false}};

const Mode& mode_of(Str name) {
  for (const Mode& mode : kModes) {
    if (name == mode.name) return mode;
  }
  refuse(ErrorCode::kValue, kInterpolate, "mode is '", std::string(name),
         "': give nearest, nearest-exact, linear, bilinear, bicubic, trilinear or area");
}

template <class List>
auto one_of_each(const List& values, int64_t i, int64_t dims, const char* name) {
  const auto count = static_cast<int64_t>(values.size());
  check_value(count == 1 || count == dims, kInterpolate, name, " has ", count,
              " values: give one, or one for each of ", dims, " spatial dimensions");
  return values[count == 1 ? 0 : static_cast<size_t>(i)];
}

// Returns the index of a name among those of ATen's modes.
template <size_t n>
int64_t index_of(const char* what, Str name, const std::array<const char*, n>& names) {
  for (size_t i = 0; i < n; ++i) {
    if (name == names[i]) return static_cast<int64_t>(i);
  }
  refuse(ErrorCode::kValue, "grid_sample", what, " is '", std::string(name), "': give ", names[0],
         ", ", names[1], " or ", names[2]);
}

}  // namespace

Tensor interpolate(const Tensor& input, OptionalIntList size, OptionalFloatList scale_factor,
                   Str mode_name, std::optional<bool> align_corners,
                   std::optional<bool> recompute_scale_factor, bool antialias) {
  const Mode& mode = mode_of(mode_name);
  const std::string name = mode.name;
  const int64_t dims = input.dim() - 2;
  check_shape(dims >= 1 && dims <= 3 && (mode.dims == 0 || dims == mode.dims), kInterpolate,
              "input ", input.sizes(), " does not have ",
              mode.dims == 0 ? "3 to 5" : std::to_string(mode.dims + 2), " dimensions, as mode \"",
              mode.name, "\" needs");
  check_type(input.is_floating_point() || mode.takes_integers, kInterpolate, "mode \"", mode.name,
             "\" needs a floating-point input, not ", input.dtype());
  check_value(size.has_value() != scale_factor.has_value(), kInterpolate,
              "give either size or scale_factor");
  check_value(mode.takes_corners || !align_corners.value_or(false), kInterpolate, "mode \"",
              mode.name, "\" takes no align_corners");
  check_value(!antialias || name == "bilinear" || name == "bicubic", kInterpolate, "mode \"",
              mode.name, "\" takes no antialias: use \"bilinear\" or \"bicubic\"");
  check_value(!recompute_scale_factor.value_or(false) || scale_factor.has_value(), kInterpolate,
              "recompute_scale_factor needs a scale_factor");
  Dims out;
  std::optional<double> scales[3];
  for (int64_t i = 0; i < dims; ++i) {
    const int64_t in = input.size(i + 2);
    if (size.has_value()) {
      out.push_back(one_of_each(*size, i, dims, "size"));
    } else {
      const double scale = one_of_each(*scale_factor, i, dims, "scale_factor");
      const double exact = std::floor(static_cast<double>(in) * scale);
      check_value(exact >= 1 && exact < 9e15, kInterpolate, "scale_factor ", scale, " of size ", in,
                  " gives no size");
      out.push_back(static_cast<int64_t>(exact));
      if (!recompute_scale_factor.value_or(false)) scales[i] = scale;
    }
    check_shape(in >= 1 && out.back() >= 1, kInterpolate, "input ", input.sizes(),
                " cannot be resized to size ", out.back(), ": sizes must be positive");
    constexpr int64_t kMost = int64_t{1} << 28;
    if (out.back() > kMost) {
      refuse(ErrorCode::kOutOfMemory, kInterpolate, "a dimension of ", out.back(),
             " elements is larger than 2^28");
    }
  }
  const IntList sizes = as_list(out);
  const auto& [a, b, c] = scales;
  const bool align = align_corners.value_or(false);
  if (name == "nearest") {
    return dims == 1   ? mytorch::upsample_nearest1d(input, sizes, a)
           : dims == 2 ? mytorch::upsample_nearest2d(input, sizes, a, b)
                       : mytorch::upsample_nearest3d(input, sizes, a, b, c);
  }
  if (name == "nearest-exact") {
    return dims == 1   ? mytorch::upsample_nearest_exact1d(input, sizes, a)
           : dims == 2 ? mytorch::upsample_nearest_exact2d(input, sizes, a, b)
                       : mytorch::upsample_nearest_exact3d(input, sizes, a, b, c);
  }
  if (name == "linear") return mytorch::upsample_linear1d(input, sizes, align, a);
  if (name == "bilinear") {
    return antialias ? mytorch::upsample_bilinear2d_aa(input, sizes, align, a, b)
                     : mytorch::upsample_bilinear2d(input, sizes, align, a, b);
  }
  if (name == "bicubic") {
    return antialias ? mytorch::upsample_bicubic2d_aa(input, sizes, align, a, b)
                     : mytorch::upsample_bicubic2d(input, sizes, align, a, b);
  }
  if (name == "trilinear") return mytorch::upsample_trilinear3d(input, sizes, align, a, b, c);
  if (dims == 1) return mytorch::adaptive_avg_pool1d(input, sizes);
  if (dims == 2) return mytorch::adaptive_avg_pool2d(input, sizes);
  return mytorch::adaptive_avg_pool3d(input, sizes);
}

Tensor grid_sample(const Tensor& input, const Tensor& grid, Str mode, Str padding_mode,
                   std::optional<bool> align_corners) {
  constexpr std::array<const char*, 3> kNames = {"bilinear", "nearest", "bicubic"};
  constexpr std::array<const char*, 3> kPaddings = {"zeros", "border", "reflection"};
  return mytorch::grid_sampler(input, grid, index_of("mode", mode, kNames),
                               index_of("padding_mode", padding_mode, kPaddings),
                               align_corners.value_or(false));
}

}  // namespace mytorch::composite
