#include "mytorch/nn/dropout.h"

#include "mytorch/nn/functional.h"
#include "nn/functional/options.h"

namespace mytorch::nn {

DropoutBase::DropoutBase(const char* name, double p, std::optional<Generator> generator)
    : name_(name), p_(p), generator_(std::move(generator)) {
  check_probability(name, p);
}

std::string DropoutBase::describe() const { return absl::StrCat(name_, "(p=", p_, ")"); }

Tensor Dropout::forward(const Tensor& input) {
  return drops() ? dropout(input, p_, true, generator_) : input;
}

Tensor Dropout1d::forward(const Tensor& input) {
  return functional::dropout1d(input, p_, training(), generator_);
}

Tensor Dropout2d::forward(const Tensor& input) {
  return functional::dropout2d(input, p_, training(), generator_);
}

Tensor Dropout3d::forward(const Tensor& input) {
  return functional::dropout3d(input, p_, training(), generator_);
}

Tensor AlphaDropout::forward(const Tensor& input) {
  return functional::alpha_dropout(input, p_, training(), generator_);
}

Tensor FeatureAlphaDropout::forward(const Tensor& input) {
  return functional::feature_alpha_dropout(input, p_, training(), generator_);
}

}  // namespace mytorch::nn
