// Padding of the last 1, 2 or 3 dimensions of (N, C, ...) or (C, ...).
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

// How elements outside of the input are made: a constant, the mirrored input without its edge, its
// edge repeated, or its other end.
enum class PadMode { kConstant, kReflect, kReplicate, kCircular };
PadMode from_name(Str name, PadMode);  // NOLINT: named by its type
const char* name_of(PadMode mode);

template <size_t n>
struct PadAllArgs {
  Sizes<2 * n> padding = 0;
  double value = 0;  // for kConstant
};

// One padding for all sides, or a pair (before, after) for each dimension, the last one's first, as
// in PyTorch: ZeroPad2d({left, right, top, bottom}).
template <size_t n, PadMode mode>
class PadNd : public Module {
 public:
  using Module::Module;
  explicit PadNd(Sizes<2 * n> padding) : options({padding, 0}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

  BuiltOptions<PadAllArgs<n>> options;
};

extern template class PadNd<1, PadMode::kConstant>;
extern template class PadNd<2, PadMode::kConstant>;
extern template class PadNd<3, PadMode::kConstant>;
extern template class PadNd<1, PadMode::kReflect>;
extern template class PadNd<2, PadMode::kReflect>;
extern template class PadNd<3, PadMode::kReflect>;
extern template class PadNd<1, PadMode::kReplicate>;
extern template class PadNd<2, PadMode::kReplicate>;
extern template class PadNd<3, PadMode::kReplicate>;
extern template class PadNd<1, PadMode::kCircular>;
extern template class PadNd<2, PadMode::kCircular>;
extern template class PadNd<3, PadMode::kCircular>;

class ZeroPad1d final : public Layer<ZeroPad1d, PadNd<1, PadMode::kConstant>> {
 public:
  using Layer::Layer;
};
class ZeroPad2d final : public Layer<ZeroPad2d, PadNd<2, PadMode::kConstant>> {
 public:
  using Layer::Layer;
};
class ZeroPad3d final : public Layer<ZeroPad3d, PadNd<3, PadMode::kConstant>> {
 public:
  using Layer::Layer;
};
class ConstantPad1d final : public Layer<ConstantPad1d, PadNd<1, PadMode::kConstant>> {
 public:
  using Layer::Layer;
  ConstantPad1d(Sizes<2> padding, double value) : Layer(padding) { options.args().value = value; }
};
class ConstantPad2d final : public Layer<ConstantPad2d, PadNd<2, PadMode::kConstant>> {
 public:
  using Layer::Layer;
  ConstantPad2d(Sizes<4> padding, double value) : Layer(padding) { options.args().value = value; }
};
class ConstantPad3d final : public Layer<ConstantPad3d, PadNd<3, PadMode::kConstant>> {
 public:
  using Layer::Layer;
  ConstantPad3d(Sizes<6> padding, double value) : Layer(padding) { options.args().value = value; }
};
class ReflectionPad1d final : public Layer<ReflectionPad1d, PadNd<1, PadMode::kReflect>> {
 public:
  using Layer::Layer;
};
class ReflectionPad2d final : public Layer<ReflectionPad2d, PadNd<2, PadMode::kReflect>> {
 public:
  using Layer::Layer;
};
class ReflectionPad3d final : public Layer<ReflectionPad3d, PadNd<3, PadMode::kReflect>> {
 public:
  using Layer::Layer;
};
class ReplicationPad1d final : public Layer<ReplicationPad1d, PadNd<1, PadMode::kReplicate>> {
 public:
  using Layer::Layer;
};
class ReplicationPad2d final : public Layer<ReplicationPad2d, PadNd<2, PadMode::kReplicate>> {
 public:
  using Layer::Layer;
};
class ReplicationPad3d final : public Layer<ReplicationPad3d, PadNd<3, PadMode::kReplicate>> {
 public:
  using Layer::Layer;
};
class CircularPad1d final : public Layer<CircularPad1d, PadNd<1, PadMode::kCircular>> {
 public:
  using Layer::Layer;
};
class CircularPad2d final : public Layer<CircularPad2d, PadNd<2, PadMode::kCircular>> {
 public:
  using Layer::Layer;
};
class CircularPad3d final : public Layer<CircularPad3d, PadNd<3, PadMode::kCircular>> {
 public:
  using Layer::Layer;
};

// ZeroPad2dOptions({left, right, top, bottom})
using ZeroPad1dOptions = Options<NoArgs, Sizes<2>>;
using ZeroPad2dOptions = Options<NoArgs, Sizes<4>>;
using ZeroPad3dOptions = Options<NoArgs, Sizes<6>>;
using ReflectionPad1dOptions = Options<NoArgs, Sizes<2>>;
using ReflectionPad2dOptions = Options<NoArgs, Sizes<4>>;
using ReflectionPad3dOptions = Options<NoArgs, Sizes<6>>;
using ReplicationPad1dOptions = Options<NoArgs, Sizes<2>>;
using ReplicationPad2dOptions = Options<NoArgs, Sizes<4>>;
using ReplicationPad3dOptions = Options<NoArgs, Sizes<6>>;
using CircularPad1dOptions = Options<NoArgs, Sizes<2>>;
using CircularPad2dOptions = Options<NoArgs, Sizes<4>>;
using CircularPad3dOptions = Options<NoArgs, Sizes<6>>;
using ConstantPad1dOptions = Options<NoArgs, Sizes<2>, double>;
using ConstantPad2dOptions = Options<NoArgs, Sizes<4>, double>;
using ConstantPad3dOptions = Options<NoArgs, Sizes<6>, double>;

}  // namespace mytorch::nn
