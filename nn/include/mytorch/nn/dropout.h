// Dropout. In training, each module zeros at random; in evaluation, it returns its input.
#pragma once

#include <optional>
#include <utility>

#include "mytorch/generator.h"
#include "mytorch/nn/module.h"

namespace mytorch::nn {

// The base of all dropouts. Constructors throw Error(kValue) unless p is in [0, 1].
class DropoutBase : public Module {
 public:
  std::string describe() const override;

 protected:
  DropoutBase(const char* name, double p, std::optional<Generator> generator);
  bool drops() const { return training() && p_ != 0; }

  const char* name_;
  double p_;
  std::optional<Generator> generator_;
};

// Zeros each element with probability `p` and scales the others by 1 / (1 - p).
class Dropout final : public DropoutBase {
 public:
  explicit Dropout(double p = 0.5, std::optional<Generator> generator = {})
      : DropoutBase("Dropout", p, std::move(generator)) {}
  Tensor forward(const Tensor& input) override;
};

// Zeros whole channels of (N, C, L) or (C, L).
class Dropout1d final : public DropoutBase {
 public:
  explicit Dropout1d(double p = 0.5, std::optional<Generator> generator = {})
      : DropoutBase("Dropout1d", p, std::move(generator)) {}
  Tensor forward(const Tensor& input) override;
};

// Zeros whole channels of (N, C, H, W) or (N, C, L).
class Dropout2d final : public DropoutBase {
 public:
  explicit Dropout2d(double p = 0.5, std::optional<Generator> generator = {})
      : DropoutBase("Dropout2d", p, std::move(generator)) {}
  Tensor forward(const Tensor& input) override;
};

// Zeros whole channels of (N, C, D, H, W) or (C, D, H, W).
class Dropout3d final : public DropoutBase {
 public:
  explicit Dropout3d(double p = 0.5, std::optional<Generator> generator = {})
      : DropoutBase("Dropout3d", p, std::move(generator)) {}
  Tensor forward(const Tensor& input) override;
};

// Sets elements to SELU's value of minus infinity, and scales and shifts so that zero mean and unit
// variance stay (Klambauer et al., "Self-normalizing neural networks", NeurIPS 2017).
class AlphaDropout final : public DropoutBase {
 public:
  explicit AlphaDropout(double p = 0.5, std::optional<Generator> generator = {})
      : DropoutBase("AlphaDropout", p, std::move(generator)) {}
  Tensor forward(const Tensor& input) override;
};

// The same for whole channels (dimension 1).
class FeatureAlphaDropout final : public DropoutBase {
 public:
  explicit FeatureAlphaDropout(double p = 0.5, std::optional<Generator> generator = {})
      : DropoutBase("FeatureAlphaDropout", p, std::move(generator)) {}
  Tensor forward(const Tensor& input) override;
};

}  // namespace mytorch::nn
