// Finds the pattern of a rule in a graph.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "graph/ir/ir.h"
#include "graph/ir/uses.h"
#include "graph/rules/rule.h"
#include "graph/rules/rule_eval.h"

namespace mytorch::graph {

struct PatternMatch {
  std::vector<std::pair<std::string, BoundName>> names;
  std::vector<int32_t> nodes;  // the root first; each once

  const BoundName* find(const std::string& name) const;
};

// Calls `accepts(match)` for each way in which a pattern matches a node and those that it uses,
// until it returns true. Returns whether it did.
bool find_matches(const Graph& graph, const GraphUses& uses, const Pattern& pattern, int32_t root,
                  const std::function<bool(const PatternMatch&)>& accepts);

}  // namespace mytorch::graph
