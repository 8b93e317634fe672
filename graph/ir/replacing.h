// Replaces values of a graph by others, many at once: the time is that of one.
#pragma once

#include <vector>

#include "graph/ir/ir.h"

namespace mytorch::graph {

class Replacing {
 public:
  explicit Replacing(Graph* graph);

  // Gives values that share the memory of `old` that of `now`, which has the same type, sizes and
  // strides. The values can move (can_move()). Nodes go on to name `old` until they are renamed.
  void replace(ValueId old, ValueId now);
  // Lets a node use what has replaced its operands and results so far.
  void rename(GraphNode* node) const;
  // The same for all nodes, the results and the grads.
  void finish();

 private:
  void rename(ValueId* id) const;

  Graph& graph_;
  std::vector<ValueId> now_;                  // of each value
  std::vector<std::vector<ValueId>> values_;  // of each buffer
};

}  // namespace mytorch::graph
