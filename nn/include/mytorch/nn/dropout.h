// Dropout. In training, each module zeros at random; in evaluation, it returns its input.
#pragma once

#include <optional>
#include <utility>

#include "mytorch/generator.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

namespace functional {
struct DropoutFuncArgs;
}

struct DropoutArgs {
  double p = 0.5;
  std::optional<Generator> generator = {};
  bool inplace = false;
};
using DropoutOptions = Options<DropoutArgs>;
using Dropout1dOptions = DropoutOptions;
using Dropout2dOptions = DropoutOptions;
using Dropout3dOptions = DropoutOptions;
using AlphaDropoutOptions = DropoutOptions;
using FeatureAlphaDropoutOptions = DropoutOptions;

// The base of all dropouts. Constructors throw Error(kValue) unless p is in [0, 1].
class DropoutBase : public Module {
 public:
  using Module::Module;
  std::string describe() const override;

  BuiltOptions<DropoutArgs> options;

 protected:
  DropoutBase(const char* name, DropoutArgs options);
  bool drops() const { return training() && options->p != 0; }
  functional::DropoutFuncArgs function_options() const;

  const char* name_ = "";
};

// Zeros each element with probability `p` and scales the others by 1 / (1 - p).
class Dropout final : public Layer<Dropout, DropoutBase> {
 public:
  using Layer::Layer;
  explicit Dropout(DropoutArgs options = {}) : Layer("Dropout", std::move(options)) {}
  explicit Dropout(double p, std::optional<Generator> generator = {})
      : Dropout(DropoutArgs{p, std::move(generator), false}) {}
  Tensor forward(const Tensor& input) override;
};

// Zeros whole channels of (N, C, L) or (C, L).
class Dropout1d final : public Layer<Dropout1d, DropoutBase> {
 public:
  using Layer::Layer;
  explicit Dropout1d(DropoutArgs options = {}) : Layer("Dropout1d", std::move(options)) {}
  explicit Dropout1d(double p, std::optional<Generator> generator = {})
      : Dropout1d(DropoutArgs{p, std::move(generator), false}) {}
  Tensor forward(const Tensor& input) override;
};

// Zeros whole channels of (N, C, H, W) or (N, C, L).
class Dropout2d final : public Layer<Dropout2d, DropoutBase> {
 public:
  using Layer::Layer;
  explicit Dropout2d(DropoutArgs options = {}) : Layer("Dropout2d", std::move(options)) {}
  explicit Dropout2d(double p, std::optional<Generator> generator = {})
      : Dropout2d(DropoutArgs{p, std::move(generator), false}) {}
  Tensor forward(const Tensor& input) override;
};

// Zeros whole channels of (N, C, D, H, W) or (C, D, H, W).
class Dropout3d final : public Layer<Dropout3d, DropoutBase> {
 public:
  using Layer::Layer;
  explicit Dropout3d(DropoutArgs options = {}) : Layer("Dropout3d", std::move(options)) {}
  explicit Dropout3d(double p, std::optional<Generator> generator = {})
      : Dropout3d(DropoutArgs{p, std::move(generator), false}) {}
  Tensor forward(const Tensor& input) override;
};

// Sets elements to SELU's value of minus infinity, and scales and shifts so that zero mean and unit
// variance stay (Klambauer et al., "Self-normalizing neural networks", NeurIPS 2017).
class AlphaDropout final : public Layer<AlphaDropout, DropoutBase> {
 public:
  using Layer::Layer;
  explicit AlphaDropout(DropoutArgs options = {}) : Layer("AlphaDropout", std::move(options)) {}
  explicit AlphaDropout(double p, std::optional<Generator> generator = {})
      : AlphaDropout(DropoutArgs{p, std::move(generator), false}) {}
  Tensor forward(const Tensor& input) override;
};

// The same for whole channels (dimension 1).
class FeatureAlphaDropout final : public Layer<FeatureAlphaDropout, DropoutBase> {
 public:
  using Layer::Layer;
  explicit FeatureAlphaDropout(DropoutArgs options = {})
      : Layer("FeatureAlphaDropout", std::move(options)) {}
  explicit FeatureAlphaDropout(double p, std::optional<Generator> generator = {})
      : FeatureAlphaDropout(DropoutArgs{p, std::move(generator), false}) {}
  Tensor forward(const Tensor& input) override;
};

}  // namespace mytorch::nn
