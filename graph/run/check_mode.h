// MYTORCH_COMPILE: compiled functions that are not trusted.
#pragma once

#include <functional>
#include <vector>

#include "graph/capture/capture.h"
#include "mytorch/tensor.h"

namespace mytorch::graph {

enum class CompileSwitch {
  kOn,
  kOff,    // the function itself runs
  kCheck,  // both run, and are compared
};

// Returns what MYTORCH_COMPILE says: "on" (the default), "off" or "check". Throws
// Error(kValue) for another word.
CompileSwitch compile_switch();

// Runs a recording's plan, then the function from the same state, and compares all results, the
// arguments, the tensors from outside, their grads and the default generator, bit for bit. The
// effects that stay and the results are the function's. Throws Error(kInternal), naming what
// differs first.
std::vector<Tensor> run_beside(const Recorded& recorded, const std::vector<Tensor>& arguments,
                               const std::function<std::vector<Tensor>()>& plan,
                               const std::function<std::vector<Tensor>()>& function);

}  // namespace mytorch::graph
