// The model and the batches of the tests of data parallelism.
#pragma once

#include <cstdint>

#include "mytorch/mytorch.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn::parallel_test {

struct Net : Module {
  Linear hidden{6, 16};
  Linear middle{16, 16};
  Linear output{16, 3};
  Net() {
    register_module("hidden", hidden);
    register_module("middle", middle);
    register_module("output", output);
  }
  Tensor forward(const Tensor& x) override { return output(relu(middle(tanh(hidden(x))))); }
};

inline ranks::Data batch(int64_t step, int64_t begin, int64_t size) {
  return ranks::batch(step, begin, size, 6, 3);
}

}  // namespace mytorch::nn::parallel_test
