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

Upsample::Upsample(UpsampleArgs options) : options_(std::move(options)) {
  if (options_.size.values().empty() == options_.scale_factor.values().empty()) {
    fail(ErrorCode::kValue, "[Upsample] give either size or scale_factor");
  }
}

Tensor Upsample::forward(const Tensor& input) { return functional::interpolate(input, options_); }

std::string Upsample::describe() const {
  const std::vector<int64_t>& size = options_.size.values();
  return absl::StrCat(
      "Upsample(",
      size.empty()
          ? absl::StrCat("scale_factor=(", absl::StrJoin(options_.scale_factor.values(), ", "), ")")
          : absl::StrCat("size=", shape_str(size)),
      ", mode=", name_of(options_.mode), ")");
}

Tensor PixelShuffle::forward(const Tensor& input) {
  return functional::pixel_shuffle(input, factor_);
}
std::string PixelShuffle::describe() const {
  return absl::StrCat("PixelShuffle(upscale_factor=", factor_, ")");
}

Tensor PixelUnshuffle::forward(const Tensor& input) {
  return functional::pixel_unshuffle(input, factor_);
}
std::string PixelUnshuffle::describe() const {
  return absl::StrCat("PixelUnshuffle(downscale_factor=", factor_, ")");
}

Tensor ChannelShuffle::forward(const Tensor& input) {
  return functional::channel_shuffle(input, groups_);
}
std::string ChannelShuffle::describe() const {
  return absl::StrCat("ChannelShuffle(groups=", groups_, ")");
}

Unfold::Unfold(Sizes<2> kernel_size, UnfoldArgs options)
    : kernel_size_(kernel_size), options_(options) {
  check_sizes("Unfold", 1, "kernel_size", kernel_size);
}
Tensor Unfold::forward(const Tensor& input) {
  return functional::unfold(input, kernel_size_, options_);
}
std::string Unfold::describe() const {
  return absl::StrCat("Unfold(kernel_size=", text(kernel_size_),
                      ", dilation=", text(options_.dilation), ", padding=", text(options_.padding),
                      ", stride=", text(options_.stride), ")");
}

Fold::Fold(Sizes<2> output_size, Sizes<2> kernel_size, FoldArgs options)
    : output_size_(output_size), kernel_size_(kernel_size), options_(options) {
  check_sizes("Fold", 1, "kernel_size", kernel_size);
}
Tensor Fold::forward(const Tensor& input) {
  return functional::fold(input, output_size_, kernel_size_, options_);
}
std::string Fold::describe() const {
  return absl::StrCat("Fold(output_size=", text(output_size_), ", kernel_size=", text(kernel_size_),
                      ", dilation=", text(options_.dilation), ", padding=", text(options_.padding),
                      ", stride=", text(options_.stride), ")");
}

}  // namespace mytorch::nn
