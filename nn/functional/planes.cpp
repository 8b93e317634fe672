// Resizing and rearranging of planes.
#include <vector>

#include "mytorch/nn/functional.h"
#include "mytorch/ops/affine_grid_generator.h"
#include "mytorch/ops/channel_shuffle.h"
#include "mytorch/ops/col2im.h"
#include "mytorch/ops/grid_sampler.h"
#include "mytorch/ops/im2col.h"
#include "mytorch/ops/interpolate.h"
#include "mytorch/ops/pixel_shuffle.h"
#include "mytorch/ops/pixel_unshuffle.h"
#include "nn/functional/named.h"

namespace mytorch::nn::functional {

Tensor interpolate(const Tensor& input, const UpsampleArgs& options) {
  const std::vector<int64_t>& size = options.size.values();
  const std::vector<double>& factor = options.scale_factor.values();
  return mytorch::interpolate(input, size.empty() ? OptionalIntList() : OptionalIntList(size),
                              factor.empty() ? OptionalFloatList() : OptionalFloatList(factor),
                              name_of(options.mode), options.align_corners,
                              options.recompute_scale_factor, options.antialias);
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
