// Computes values of forward again in backward, so that they need no memory in between.
//
// Of the values that live from forward to backward, the cheap ones are functions of others: an
// activation or a norm of its operand, a cast of a weight. A minimal cut of the graph finds which
// values must stay, so that all others follow from them by cheap operators and their bytes are the
// fewest. What is computed again has the bits of the first time: the same operators of the same
// operands.
#pragma once

#include <cstddef>

#include "graph/passes/passes.h"

namespace mytorch::graph {

// Lets nodes from `begin` on read recomputed values of the nodes before, as far as the budget of
// the options demands. `fired` counts the nodes that were added, as `recomputation`, and the bytes
// that live no longer, as `recomputation: bytes`.
void recompute_behind(Graph* graph, size_t begin, const PassOptions& options, Fired* fired);

}  // namespace mytorch::graph
