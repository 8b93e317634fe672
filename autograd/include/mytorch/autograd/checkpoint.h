// Activation checkpointing: recomputes values that backward needs instead of storing them.
#pragma once

#include <vector>

#include "mytorch/generator.h"
#include "mytorch/std_function.h"
#include "mytorch/tensor.h"

namespace mytorch::autograd {

struct CheckpointOptions {
  // Generators that `function` uses, other than the one that is the default of the call. The
  // recomputation has the same default, and all in the same state, so that it draws the same random
  // numbers; afterwards, their state is restored.
  std::vector<Generator> generators;
};

// Returns function(inputs), saving only the inputs for backward; backward calls `function` again
// when it needs the first saved value. `function` must compute the same values both times. It may
// use other tensors that require grad. Supports backward and grad with create_graph and
// retain_graph, and nesting.
std::vector<Tensor> checkpoint(
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> function,
    const std::vector<Tensor>& inputs, const CheckpointOptions& options = {});

}  // namespace mytorch::autograd
