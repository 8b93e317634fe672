// The residual stream of a transformer.
#pragma once

#include "mytorch/tensor.h"

namespace mytorch::nn::models {

// What the blocks of a transformer pass on: x + branch. Blocks that normalize first leave the sum
// to the norm that follows, which computes both in one pass over memory.
struct ResidualStream {
  Tensor x;
  Tensor branch = {};  // undefined: zero

  Tensor sum() const;
  // Returns norm(sum()), and keeps the sum. Norm is nn::LayerNorm or nn::RMSNorm.
  template <class Norm>
  Tensor normalized(Norm& norm) {
    if (!branch.defined()) return norm(x);
    auto [y, sum] = norm(branch, x);
    *this = {sum};
    return y;
  }
};

}  // namespace mytorch::nn::models
