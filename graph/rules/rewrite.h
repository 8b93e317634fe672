// Applies rules (rule.h) to a graph.
//
// A pattern matches nodes that only compute, whose results are memory of their own. Views do not
// appear in patterns: a value is known by its type and geometry, whichever views made it.
//
// A rule fires if
//   - the values inside of the pattern have no other use, unless the replacement gives them, too;
//   - nothing writes its operands between the first node of the match and the last;
//   - its condition holds;
//   - the replacement, recorded with tensors of zeros in place of the operands, gives values of the
//     same types, sizes and strides.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/ir/ir.h"
#include "graph/rules/rule.h"
#include "mytorch/compile_mode.h"

namespace mytorch::graph {

// How often each rule or pass did something, by name.
using Fired = std::map<std::string, int64_t>;

// Returns whether rules of a mode apply to functions that are compiled in another.
bool is_allowed(RuleMode rule, CompileMode mode);

// Applies rules until none fires any more.
void rewrite(Graph* graph, const std::vector<const Rule*>& rules, CompileMode mode, Fired* fired);

}  // namespace mytorch::graph
