// Gives parts of a graph to backends that compile and run them as a whole.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "graph/steps/plan_parts.h"

namespace mytorch::graph {

// What became of a node in the first run: kernel calls, or a part for the interpreter.
struct NodeRun {
  size_t begin = 0;  // of its steps
  size_t end = 0;
  bool interpreted = false;
};

// Returns, for each buffer of a graph, its memory if the elements never change: nothing but the
// recording, and the one of which it is a copy, refers to the tensor, and the graph does not write
// it. Null for others.
std::vector<const void*> constant_memory(const Recorded& recorded);

// Replaces the steps and nodes that backends take by a step for each region. Must run before the
// kinds of memories are known to be results. `own(id)` makes the plan's tensor of a value.
void compile_regions(PlanParts* parts, const std::vector<NodeRun>& ran,
                     const std::vector<const void*>& constants,
                     const std::function<void(ValueId)>& own);

}  // namespace mytorch::graph
