// Activation functions as modules. Each calls the operator of the same name
// (mytorch/nn/functional.h) and keeps the shape of its input.
#pragma once

#include <cstdint>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

class ReLU final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

class ReLU6 final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

class SELU final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

class SiLU final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

class Mish final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

class Tanh final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

class Sigmoid final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

class LogSigmoid final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

class Softsign final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

class Hardsigmoid final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

class Hardswish final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

class LeakyReLU final : public Module {
 public:
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope_(negative_slope) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  double negative_slope_;
};

// max(x, 0) + weight * min(x, 0), with one trained weight for all channels or one per channel
// (dimension 1).
class PReLU final : public Module {
 public:
  explicit PReLU(int64_t num_parameters = 1, double init = 0.25);
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

  Tensor weight;
};

class ELU final : public Module {
 public:
  explicit ELU(double alpha = 1) : alpha_(alpha) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  double alpha_;
};

class CELU final : public Module {
 public:
  explicit CELU(double alpha = 1) : alpha_(alpha) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  double alpha_;
};

enum class Gelu { kExact, kTanh };
Gelu from_name(Str name, Gelu);  // NOLINT: named by its type
const char* name_of(Gelu kind);  // PyTorch's: "none" or "tanh"

class GELU final : public Module {
 public:
  explicit GELU(OneOf<Gelu> approximate = Gelu::kExact) : kind_(approximate) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  Gelu kind_;
};

class Softplus final : public Module {
 public:
  explicit Softplus(double beta = 1, double threshold = 20) : beta_(beta), threshold_(threshold) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  double beta_;
  double threshold_;
};

class Hardtanh final : public Module {
 public:
  explicit Hardtanh(double min = -1, double max = 1);
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  double min_;
  double max_;
};

class Tanhshrink final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

class Hardshrink final : public Module {
 public:
  explicit Hardshrink(double lambd = 0.5) : lambd_(lambd) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  double lambd_;
};

class Softshrink final : public Module {
 public:
  explicit Softshrink(double lambd = 0.5);
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  double lambd_;
};

// The input if it is greater than `threshold`, else `value`.
class Threshold final : public Module {
 public:
  Threshold(double threshold, double value) : threshold_(threshold), value_(value) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  double threshold_;
  double value_;
};

// The first half of dimension `dim`, times the sigmoid of the second half.
class GLU final : public Module {
 public:
  explicit GLU(int64_t dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  int64_t dim_;
};

// LeakyReLU with a slope for each element, in training uniform in [lower, upper), else their mean.
class RReLU final : public Module {
 public:
  explicit RReLU(double lower = 1.0 / 8, double upper = 1.0 / 3);
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  double lower_;
  double upper_;
};

class Softmax final : public Module {
 public:
  explicit Softmax(int64_t dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  int64_t dim_;
};

class LogSoftmax final : public Module {
 public:
  explicit LogSoftmax(int64_t dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  int64_t dim_;
};

class Softmin final : public Module {
 public:
  explicit Softmin(int64_t dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  int64_t dim_;
};

// softmax over the channels of (N, C, H, W) or (C, H, W).
class Softmax2d final : public Module {
 public:
  Tensor forward(const Tensor& input) override;
};

}  // namespace mytorch::nn
