// Runs a graph whose operators may give other results than the graph states.
#pragma once

#include <functional>
#include <vector>

#include "graph/capture/capture.h"
#include "mytorch/tensor.h"

namespace mytorch::graph {

// Runs a graph node by node, with ordinary tensors, and checks that each operator gives results of
// the types, shapes, strides and memory that the graph states, and that each value lies within its
// memory. A graph that has passed may be planned. The arguments must be as the graph states them.
// `computed` is called with each tensor that an operator has computed or written, which it may
// change. Throws Error(kValue), naming the operator, at the first that differs.
std::vector<Tensor> run_checked(const Recorded& recorded, const std::vector<Tensor>& arguments,
                                const std::function<void(const Tensor&)>& computed = {});

}  // namespace mytorch::graph
