// The work of the nodes of a graph, from their types and shapes: nothing runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "conformance/catalog.h"
#include "graph/ir/ir.h"
#include "plan/captured.h"

namespace mytorch::bench {

struct NodeCost {
  double flops = 0;
  double bytes = 0;
  bool known = true;      // whether `flops` is, or there are none
  bool recorded = false;  // whether the operator's record states them
};

// The costs of a graph's nodes, which must live as long as this object. Throws Error(kIo) if the
// records of operators are not found.
class GraphCosts {
 public:
  explicit GraphCosts(const graph::Graph& graph);
  NodeCost of(const graph::GraphNode& node) const;
  const graph::Graph& graph() const { return graph_; }

 private:
  const graph::Graph& graph_;
  std::vector<conformance::OpRecord> catalog_;
  std::map<std::string, const conformance::OpRecord*> records_;
};

// Returns what `mytorch plan` needs to know of a step of training: forward, backward and, if it is
// recorded, the update. Gradients are those that the graph leaves behind for tensors from outside,
// the parameters; a gradient is complete when its memory is written for the last time before it is
// read. Everything behind the last one is the update. Throws Error(kValue) for a graph without
// gradients.
plan::Captured captured_step(const graph::Graph& graph);

}  // namespace mytorch::bench
