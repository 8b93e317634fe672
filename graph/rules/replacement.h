// What takes the place of a match: a graph of its own, recorded with tensors of zeros.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/ir/ir.h"
#include "graph/rules/match.h"
#include "graph/rules/rule.h"

namespace mytorch::graph {

struct Replacement {
  Graph graph;                    // its arguments are `operands`, its results the new values
  std::vector<ValueId> operands;  // of the graph that is rewritten
  std::vector<ValueId> replaced;  // for each result, the value whose place it takes
};

// Records the replacement of a match. Returns nothing, and sets `reason`, if it cannot be computed
// or gives values of other types or geometries than those that it replaces.
std::optional<Replacement> record_replacement(const Graph& graph, const Rule& rule,
                                              const PatternMatch& match, std::string* reason);

// Inserts the nodes of a replacement before node `at`. Returns the new values, one for each result.
std::vector<ValueId> insert(Graph* graph, const Replacement& replacement, int32_t at);

}  // namespace mytorch::graph
