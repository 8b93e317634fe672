#include "mytorch/nn/upsampling.h"

#include "mytorch/nn/functional.h"
#include "nn/functional/options.h"

namespace mytorch::nn {
namespace {

constexpr const char* kInterpolateModes[] = {"nearest",   "linear", "bilinear",     "bicubic",
                                             "trilinear", "area",   "nearest-exact"};
constexpr const char* kGridSampleModes[] = {"bilinear", "nearest", "bicubic"};
constexpr const char* kGridPaddings[] = {"zeros", "border", "reflection"};

}  // namespace

InterpolateMode from_name(Str name, InterpolateMode /*type*/) {
  return static_cast<InterpolateMode>(index_of_name("interpolate", name, kInterpolateModes));
}

GridSampleMode from_name(Str name, GridSampleMode /*type*/) {
  return static_cast<GridSampleMode>(index_of_name("grid_sample", name, kGridSampleModes));
}

GridPadding from_name(Str name, GridPadding /*type*/) {
  return static_cast<GridPadding>(index_of_name("grid_sample", name, kGridPaddings));
}

const char* name_of(InterpolateMode mode) { return kInterpolateModes[static_cast<size_t>(mode)]; }

Upsample::Upsample(UpsampleArgs options) : LayerWith(std::move(options)) {
  if (this->options->size.values().empty() == this->options->scale_factor.values().empty()) {
    fail(ErrorCode::kValue, "[Upsample] give either size or scale_factor");
  }
}

Tensor Upsample::forward(const Tensor& input) {
  return functional::interpolate(input, options.args());
}

std::string Upsample::describe() const {
  const std::vector<int64_t>& size = options->size.values();
  return absl::StrCat(
      "Upsample(",
      size.empty()
          ? absl::StrCat("scale_factor=(", absl::StrJoin(options->scale_factor.values(), ", "), ")")
          : absl::StrCat("size=", shape_str(size)),
      ", mode=", name_of(options->mode), ")");
}

Tensor PixelShuffle::forward(const Tensor& input) {
  return functional::pixel_shuffle(input, options->upscale_factor);
}
std::string PixelShuffle::describe() const {
  return absl::StrCat("PixelShuffle(upscale_factor=", options->upscale_factor, ")");
}

Tensor PixelUnshuffle::forward(const Tensor& input) {
  return functional::pixel_unshuffle(input, options->downscale_factor);
}
std::string PixelUnshuffle::describe() const {
  return absl::StrCat("PixelUnshuffle(downscale_factor=", options->downscale_factor, ")");
}

Tensor ChannelShuffle::forward(const Tensor& input) {
  return functional::channel_shuffle(input, options->groups);
}
std::string ChannelShuffle::describe() const {
  return absl::StrCat("ChannelShuffle(groups=", options->groups, ")");
}

Unfold::Unfold(Sizes<2> kernel_size, UnfoldArgs options) : options({options, kernel_size}) {
  check_sizes("Unfold", 1, "kernel_size", kernel_size);
}
Tensor Unfold::forward(const Tensor& input) {
  return functional::unfold(input, options->kernel_size, options.args());
}
std::string Unfold::describe() const {
  return absl::StrCat("Unfold(kernel_size=", text(options->kernel_size),
                      ", dilation=", text(options->dilation), ", padding=", text(options->padding),
                      ", stride=", text(options->stride), ")");
}

Fold::Fold(Sizes<2> output_size, Sizes<2> kernel_size, FoldArgs options)
    : options({options, output_size, kernel_size}) {
  check_sizes("Fold", 1, "kernel_size", kernel_size);
}
Tensor Fold::forward(const Tensor& input) {
  return functional::fold(input, options->output_size, options->kernel_size, options.args());
}
std::string Fold::describe() const {
  return absl::StrCat("Fold(output_size=", text(options->output_size),
                      ", kernel_size=", text(options->kernel_size),
                      ", dilation=", text(options->dilation), ", padding=", text(options->padding),
                      ", stride=", text(options->stride), ")");
}

}  // namespace mytorch::nn
