// Applies the rules of the records, and those that were added.
#include "graph/passes/passes.h"
#include "graph/rules/rule.h"

namespace mytorch::graph {

void apply_rules(Recorded* recorded, const PassOptions& options, Fired* fired) {
  rewrite(&recorded->graph, rules(), options.mode, fired);
}

}  // namespace mytorch::graph
