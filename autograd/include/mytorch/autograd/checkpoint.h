// Less memory for more time: values that backward needs are computed again instead of kept.
#pragma once

#include <functional>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/tensor.h"

namespace mytorch::autograd {

struct CheckpointOptions {
  // Generators beside the default one whose random numbers `function` uses: what is computed again
  // draws the same ones.
  std::vector<Generator> generators;
};

// Calls function(inputs), keeping only the inputs of what backward needs; backward calls it again
// when it comes to the first of these values. `function` has to compute the same both times; it may
// use other tensors that require grad. Works with backward and grad, create_graph and retain_graph,
// and inside itself.
std::vector<Tensor> checkpoint(
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> function,
    const std::vector<Tensor>& inputs, const CheckpointOptions& options = {});

}  // namespace mytorch::autograd
