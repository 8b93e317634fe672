// Layers that resize or rearrange planes: Upsample, PixelShuffle, Fold, ...
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

enum class InterpolateMode {
  kNearest,
  kLinear,
  kBilinear,
  kBicubic,
  kTrilinear,
  kArea,
  kNearestExact
};
InterpolateMode from_name(Str name, InterpolateMode);  // NOLINT: named by its type
const char* name_of(InterpolateMode mode);

// Give either `size` or `scale_factor`, one number or one for each spatial dimension.
struct UpsampleArgs {
  OneOrMore<int64_t> size = {};
  OneOrMore<double> scale_factor = {};
  OneOf<InterpolateMode> mode = InterpolateMode::kNearest;  // or "nearest", "bilinear", ...
  bool align_corners = false;  // whether the corners of input and output have the same centers
  bool antialias = false;      // averages when it shrinks; for "bilinear" and "bicubic"
  // Whether positions follow from the sizes of input and output, which scale_factor, rounded down,
  // determines, instead of from scale_factor itself.
  std::optional<bool> recompute_scale_factor = {};
};
using UpsampleOptions = Options<UpsampleArgs>;

enum class GridSampleMode { kBilinear, kNearest, kBicubic };
enum class GridPadding { kZeros, kBorder, kReflection };
GridSampleMode from_name(Str name, GridSampleMode);  // NOLINT: named by its type
GridPadding from_name(Str name, GridPadding);        // NOLINT: named by its type

struct GridSampleArgs {
  OneOf<GridSampleMode> mode = GridSampleMode::kBilinear;  // or "nearest", "bicubic"
  OneOf<GridPadding> padding_mode = GridPadding::kZeros;   // or "border", "reflection"
  bool align_corners = false;  // whether -1 and 1 are the centers of the outermost elements
};
using GridSampleOptions = Options<GridSampleArgs>;

// Resizes the spatial dimensions of (N, C, ...), which are 1 for "linear", 2 for "bilinear" and
// "bicubic", and 3 for "trilinear".
class Upsample final : public LayerWith<Upsample, UpsampleArgs> {
 public:
  using LayerWith::LayerWith;
  explicit Upsample(UpsampleArgs options);
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

using PixelShuffleOptions = Options<NoArgs, int64_t>;
using PixelUnshuffleOptions = Options<NoArgs, int64_t>;
using ChannelShuffleOptions = Options<NoArgs, int64_t>;

struct PixelShuffleAllArgs {
  int64_t upscale_factor = 0;
};
struct PixelUnshuffleAllArgs {
  int64_t downscale_factor = 0;
};
struct ChannelShuffleAllArgs {
  int64_t groups = 0;
};

// Moves channels into planes: (..., C * r^2, H, W) to (..., C, H * r, W * r).
class PixelShuffle final : public LayerWith<PixelShuffle, PixelShuffleAllArgs> {
 public:
  using LayerWith::LayerWith;
  explicit PixelShuffle(int64_t upscale_factor) : LayerWith({upscale_factor}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

// The inverse: (..., C, H * r, W * r) to (..., C * r^2, H, W).
class PixelUnshuffle final : public LayerWith<PixelUnshuffle, PixelUnshuffleAllArgs> {
 public:
  using LayerWith::LayerWith;
  explicit PixelUnshuffle(int64_t downscale_factor) : LayerWith({downscale_factor}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

// Divides the channels (dimension 1) into groups and interleaves these.
class ChannelShuffle final : public LayerWith<ChannelShuffle, ChannelShuffleAllArgs> {
 public:
  using LayerWith::LayerWith;
  explicit ChannelShuffle(int64_t groups) : LayerWith({groups}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

struct FoldArgs {
  Sizes<2> dilation = 1;
  Sizes<2> padding = 0;
  Sizes<2> stride = 1;
};
using UnfoldArgs = FoldArgs;
using FoldOptions = Options<FoldArgs, Sizes<2>, Sizes<2>>;
using UnfoldOptions = Options<UnfoldArgs, Sizes<2>>;

struct UnfoldAllArgs : FoldArgs {
  Sizes<2> kernel_size = 0;
};
struct FoldAllArgs : FoldArgs {
  Sizes<2> output_size = 0;
  Sizes<2> kernel_size = 0;
};

// Extracts the windows of (N, C, H, W): (N, C * kernel, windows). Without a batch, (C, H, W).
class Unfold final : public Layer<Unfold> {
 public:
  using Layer::Layer;
  explicit Unfold(Sizes<2> kernel_size, UnfoldArgs options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

  BuiltOptions<UnfoldAllArgs> options;
};

// Adds windows (N, C * kernel, windows) up to planes (N, C, *output_size).
class Fold final : public Layer<Fold> {
 public:
  using Layer::Layer;
  Fold(Sizes<2> output_size, Sizes<2> kernel_size, FoldArgs options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

  BuiltOptions<FoldAllArgs> options;
};

}  // namespace mytorch::nn
