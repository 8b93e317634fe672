#include "mytorch/nn/dropout.h"

#include "core/types/errors.h"
#include "mytorch/ops/dropout.h"

namespace mytorch::nn {

Dropout::Dropout(double p, std::optional<Generator> generator)
    : p_(p), generator_(std::move(generator)) {
  if (!(p >= 0 && p <= 1)) {
    fail(ErrorCode::kValue, "[Dropout] p is ", p, ": give a probability, from 0 to 1");
  }
}

Tensor Dropout::forward(const Tensor& input) {
  return training() && p_ != 0 ? dropout(input, p_, true, generator_) : input;
}

std::string Dropout::describe() const { return absl::StrCat("Dropout(p=", p_, ")"); }

}  // namespace mytorch::nn
