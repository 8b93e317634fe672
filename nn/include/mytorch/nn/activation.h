// Activation functions as modules. Each calls the operator of the same name
// (mytorch/nn/functional.h) and keeps the shape of its input.
#pragma once

#include <cstdint>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

// Activations with the option `inplace` may overwrite their input, which saves memory.
struct InplaceArgs {
  bool inplace = false;
};
using ReLUOptions = Options<InplaceArgs>;

class ReLU final : public LayerWith<ReLU, InplaceArgs> {
 public:
  using LayerWith::LayerWith;
  explicit ReLU(bool inplace) : LayerWith({inplace}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

using ReLU6Options = Options<InplaceArgs>;

class ReLU6 final : public LayerWith<ReLU6, InplaceArgs> {
 public:
  using LayerWith::LayerWith;
  explicit ReLU6(bool inplace) : LayerWith({inplace}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

using SELUOptions = Options<InplaceArgs>;

class SELU final : public LayerWith<SELU, InplaceArgs> {
 public:
  using LayerWith::LayerWith;
  explicit SELU(bool inplace) : LayerWith({inplace}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

class SiLU final : public Layer<SiLU> {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& input) override;
};

class Mish final : public Layer<Mish> {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& input) override;
};

class Tanh final : public Layer<Tanh> {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& input) override;
};

class Sigmoid final : public Layer<Sigmoid> {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& input) override;
};

class LogSigmoid final : public Layer<LogSigmoid> {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& input) override;
};

class Softsign final : public Layer<Softsign> {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& input) override;
};

class Hardsigmoid final : public Layer<Hardsigmoid> {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& input) override;
};

class Hardswish final : public Layer<Hardswish> {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& input) override;
};

struct LeakyReLUArgs {
  double negative_slope = 0.01;
  bool inplace = false;
};
using LeakyReLUOptions = Options<LeakyReLUArgs>;

class LeakyReLU final : public LayerWith<LeakyReLU, LeakyReLUArgs> {
 public:
  using LayerWith::LayerWith;
  explicit LeakyReLU(double negative_slope) : LayerWith({negative_slope}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

struct PReLUArgs {
  int64_t num_parameters = 1;  // or one per channel
  double init = 0.25;
};
using PReLUOptions = Options<PReLUArgs>;

// max(x, 0) + weight * min(x, 0), with one trained weight for all channels or one per channel
// (dimension 1).
class PReLU final : public LayerWith<PReLU, PReLUArgs> {
 public:
  using LayerWith::LayerWith;
  explicit PReLU(PReLUArgs options = {});
  explicit PReLU(int64_t num_parameters, double init = 0.25)
      : PReLU(PReLUArgs{num_parameters, init}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

  Tensor weight;
};

struct ELUArgs {
  double alpha = 1;
  bool inplace = false;
};
using ELUOptions = Options<ELUArgs>;

class ELU final : public LayerWith<ELU, ELUArgs> {
 public:
  using LayerWith::LayerWith;
  explicit ELU(double alpha) : LayerWith({alpha}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

struct CELUArgs {
  double alpha = 1;
  bool inplace = false;
};
using CELUOptions = Options<CELUArgs>;

class CELU final : public LayerWith<CELU, CELUArgs> {
 public:
  using LayerWith::LayerWith;
  explicit CELU(double alpha) : LayerWith({alpha}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

enum class Gelu { kExact, kTanh };
Gelu from_name(Str name, Gelu);  // NOLINT: named by its type
const char* name_of(Gelu kind);  // PyTorch's: "none" or "tanh"

struct GELUArgs {
  OneOf<Gelu> approximate = Gelu::kExact;  // or "none", "tanh"
};
using GELUOptions = Options<GELUArgs>;

class GELU final : public LayerWith<GELU, GELUArgs> {
 public:
  using LayerWith::LayerWith;
  explicit GELU(OneOf<Gelu> approximate) : LayerWith({approximate}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

struct SoftplusArgs {
  double beta = 1;
  double threshold = 20;
};
using SoftplusOptions = Options<SoftplusArgs>;

class Softplus final : public LayerWith<Softplus, SoftplusArgs> {
 public:
  using LayerWith::LayerWith;
  explicit Softplus(double beta, double threshold = 20) : LayerWith({beta, threshold}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

struct HardtanhArgs {
  double min_val = -1;
  double max_val = 1;
  bool inplace = false;
};
using HardtanhOptions = Options<HardtanhArgs>;

class Hardtanh final : public LayerWith<Hardtanh, HardtanhArgs> {
 public:
  using LayerWith::LayerWith;
  explicit Hardtanh(HardtanhArgs options = {});
  explicit Hardtanh(double min_val, double max_val = 1)
      : Hardtanh(HardtanhArgs{min_val, max_val}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

class Tanhshrink final : public Layer<Tanhshrink> {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& input) override;
};

struct HardshrinkArgs {
  double lambd = 0.5;
};
using HardshrinkOptions = Options<HardshrinkArgs>;

class Hardshrink final : public LayerWith<Hardshrink, HardshrinkArgs> {
 public:
  using LayerWith::LayerWith;
  explicit Hardshrink(double lambd) : LayerWith({lambd}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

struct SoftshrinkArgs {
  double lambd = 0.5;
};
using SoftshrinkOptions = Options<SoftshrinkArgs>;

class Softshrink final : public LayerWith<Softshrink, SoftshrinkArgs> {
 public:
  using LayerWith::LayerWith;
  explicit Softshrink(SoftshrinkArgs options = {});
  explicit Softshrink(double lambd) : Softshrink(SoftshrinkArgs{lambd}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

struct ThresholdArgs {
  double threshold = 0;
  double value = 0;
  bool inplace = false;
};
using ThresholdOptions = Options<ThresholdArgs>;

// The input if it is greater than `threshold`, else `value`.
class Threshold final : public LayerWith<Threshold, ThresholdArgs> {
 public:
  using LayerWith::LayerWith;
  Threshold(double threshold, double value) : LayerWith({threshold, value}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

struct GLUArgs {
  int64_t dim = -1;
};
using GLUOptions = Options<GLUArgs>;

// The first half of dimension `dim`, times the sigmoid of the second half.
class GLU final : public LayerWith<GLU, GLUArgs> {
 public:
  using LayerWith::LayerWith;
  explicit GLU(int64_t dim) : LayerWith({dim}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

struct RReLUArgs {
  double lower = 1.0 / 8;
  double upper = 1.0 / 3;
  bool inplace = false;
};
using RReLUOptions = Options<RReLUArgs>;

// LeakyReLU with a slope for each element, in training uniform in [lower, upper), else their mean.
class RReLU final : public LayerWith<RReLU, RReLUArgs> {
 public:
  using LayerWith::LayerWith;
  explicit RReLU(RReLUArgs options = {});
  explicit RReLU(double lower, double upper = 1.0 / 3) : RReLU(RReLUArgs{lower, upper}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

struct SoftmaxArgs {
  int64_t dim = -1;
};
using SoftmaxOptions = Options<SoftmaxArgs>;

class Softmax final : public LayerWith<Softmax, SoftmaxArgs> {
 public:
  using LayerWith::LayerWith;
  explicit Softmax(int64_t dim) : LayerWith({dim}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

using LogSoftmaxOptions = Options<SoftmaxArgs>;

class LogSoftmax final : public LayerWith<LogSoftmax, SoftmaxArgs> {
 public:
  using LayerWith::LayerWith;
  explicit LogSoftmax(int64_t dim) : LayerWith({dim}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

using SoftminOptions = Options<SoftmaxArgs>;

class Softmin final : public LayerWith<Softmin, SoftmaxArgs> {
 public:
  using LayerWith::LayerWith;
  explicit Softmin(int64_t dim) : LayerWith({dim}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

// softmax over the channels of (N, C, H, W) or (C, H, W).
class Softmax2d final : public Layer<Softmax2d> {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& input) override;
};

}  // namespace mytorch::nn
