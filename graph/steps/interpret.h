// Runs single nodes of a graph with tensors.
#pragma once

#include <functional>
#include <vector>

#include "graph/ir/ir.h"
#include "mytorch/tensor.h"

namespace mytorch::graph {

// Calls the operator of a node below the layers of a mask, by default all, with the tensors that
// `tensor_of` gives for its operands. Returns its results, which those of the node match one by
// one; none for in-place and out= forms, which write their operands.
std::vector<Value> interpret(const GraphNode& node, const std::function<Tensor(ValueId)>& tensor_of,
                             uint32_t masked = ~0u);

// Returns the tensors of a result of interpret().
std::vector<Tensor> tensors_of(const Value& result);

}  // namespace mytorch::graph
