// Who makes, reads and writes the memories of a graph, and which nodes depend on which.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/ir/ir.h"

namespace mytorch::graph {

struct MemoryFlow {
  // The node whose result is the first value in the memory, and that value; -1 and kNoValue for
  // memory that exists before, or that no operator allocated.
  int32_t maker = -1;
  ValueId whole = kNoValue;
  bool escapes = false;        // whether a result or a grad of the graph lies in it
  bool written = false;        // whether a node writes to it after it was made
  std::vector<int32_t> users;  // the nodes with values in it, in order
  uint64_t bytes = 0;
};

struct Flow {
  // `memory_of[b]` numbers the memory of buffer b: equal numbers for buffers that lie in one.
  // `ordered[i]` says that node i must keep its place among such nodes.
  Flow(const Graph& graph, std::vector<int32_t> memory_of, const std::vector<bool>& ordered);

  int32_t memory(ValueId id) const { return memory_of[graph.values[id].buffer]; }

  const Graph& graph;
  const std::vector<int32_t> memory_of;
  std::vector<MemoryFlow> memories;
  // For each node, those on which it depends: for a value, or for the order of writes and reads.
  std::vector<std::vector<int32_t>> before;
};

}  // namespace mytorch::graph
