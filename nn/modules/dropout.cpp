#include "mytorch/nn/dropout.h"

#include "mytorch/nn/functional.h"
#include "nn/functional/options.h"

namespace mytorch::nn {

DropoutBase::DropoutBase(const char* name, DropoutArgs options)
    : name_(name), options_(std::move(options)) {
  check_probability(name, options_.p);
}

std::string DropoutBase::describe() const { return absl::StrCat(name_, "(p=", options_.p, ")"); }

Tensor Dropout::forward(const Tensor& input) {
  return drops() ? dropout(input, options_.p, true, options_.generator) : input;
}

Tensor Dropout1d::forward(const Tensor& input) {
  return functional::dropout1d(input, options_.p, training(), options_.generator);
}

Tensor Dropout2d::forward(const Tensor& input) {
  return functional::dropout2d(input, options_.p, training(), options_.generator);
}

Tensor Dropout3d::forward(const Tensor& input) {
  return functional::dropout3d(input, options_.p, training(), options_.generator);
}

Tensor AlphaDropout::forward(const Tensor& input) {
  return functional::alpha_dropout(input, options_.p, training(), options_.generator);
}

Tensor FeatureAlphaDropout::forward(const Tensor& input) {
  return functional::feature_alpha_dropout(input, options_.p, training(), options_.generator);
}

}  // namespace mytorch::nn
