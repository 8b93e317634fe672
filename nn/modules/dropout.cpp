#include "mytorch/nn/dropout.h"

#include "mytorch/nn/functional.h"
#include "nn/functional/options.h"
#include "nn/split.h"

namespace mytorch::nn {

DropoutBase::DropoutBase(const char* name, DropoutArgs options)
    : options(std::move(options)), name_(name) {
  check_probability(name, this->options->p);
}

std::string DropoutBase::describe() const {
  return absl::StrCat(name_, "(p=", options->p, options->inplace ? ", inplace=true)" : ")");
}

functional::DropoutFuncArgs DropoutBase::function_options() const {
  return {.p = options->p,
          .training = training(),
          .generator = options->generator,
          .inplace = options->inplace};
}

Tensor Dropout::forward(const Tensor& input) {
  if (!drops()) return input;
  const Split* split = has_hooks() ? split_of(*this) : nullptr;
  if (split == nullptr) return functional::dropout(input, function_options());
  const Tensor result = split->forward(*this, input);
  return options->inplace ? functional::overwritten(input, result) : result;
}

Tensor Dropout1d::forward(const Tensor& input) {
  return functional::dropout1d(input, function_options());
}

Tensor Dropout2d::forward(const Tensor& input) {
  return functional::dropout2d(input, function_options());
}

Tensor Dropout3d::forward(const Tensor& input) {
  return functional::dropout3d(input, function_options());
}

Tensor AlphaDropout::forward(const Tensor& input) {
  return functional::alpha_dropout(input, function_options());
}

Tensor FeatureAlphaDropout::forward(const Tensor& input) {
  return functional::feature_alpha_dropout(input, function_options());
}

}  // namespace mytorch::nn
