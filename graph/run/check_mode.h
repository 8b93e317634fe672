// MYTORCH_COMPILE: compiled functions that are not trusted.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/capture/capture.h"
#include "mytorch/compile_mode.h"
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

// A call of a recording, by its plan and by the function.
struct Beside {
  const Recorded& recorded;
  const std::vector<Tensor>& arguments;
  CompileMode mode;
  std::function<std::vector<Tensor>()> plan;      // its results, and maybe more behind them
  std::function<std::vector<Tensor>()> function;  // its results
  // What the first part of a message calls result i; "result i" if it is empty.
  std::vector<std::string> names = {};
};

// Runs a recording's plan, then the function from the same state, and compares what both leave: all
// results, the arguments, the tensors from outside, their grads, the modes of modules, and the
// generators from which the graph draws, and the default one. In kExact, tensors are compared bit
// for bit. In the other modes, they may differ by 64 rounding errors of the largest element, in the
// coarsest type of the graph (closeness.h), or by what becomes of rounding errors of the function's
// operators, which is found out by running these with errors. The effects that stay and the results
// are the function's. `beyond` receives what the plan gives behind the results. Throws
// Error(kInternal), naming what differs first, and the error of the function if it fails.
std::vector<Tensor> run_beside(const Beside& call, std::vector<Tensor>* beyond = nullptr);

}  // namespace mytorch::graph
