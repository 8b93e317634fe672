// Dropout.
#pragma once

#include <optional>
#include <utility>

#include "mytorch/generator.h"
#include "mytorch/nn/module.h"

namespace mytorch::nn {

// In training, zeros each element with probability `p` and scales the others by 1 / (1 - p). In
// evaluation, returns its input.
class Dropout final : public Module {
 public:
  // Throws Error(kValue) unless p is in [0, 1].
  explicit Dropout(double p = 0.5, std::optional<Generator> generator = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  double p_;
  std::optional<Generator> generator_;
};

}  // namespace mytorch::nn
