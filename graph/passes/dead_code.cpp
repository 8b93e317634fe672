// Removes the nodes whose results nothing uses, and those that write memory that nothing reads
// later.
#include <algorithm>

#include "graph/ir/uses.h"
#include "graph/passes/passes.h"

namespace mytorch::graph {
namespace {

// Returns whether a node does more than to compute results and to write tensors.
bool has_effects(const GraphNode& node) {
  const OpInfo& op = node.op();
  return node.random() || op.custom != nullptr ||
         std::any_of(op.args, op.args + op.num_args,
                     [](const ArgInfo& arg) { return arg.type == ArgType::kHandle; });
}

}  // namespace

void remove_dead_code(Graph* graph) {
  // A buffer is needed if it is memory from outside, or if a node that is kept uses it.
  const GraphUses uses(*graph);
  std::vector<bool> needed(graph->buffers.size());
  for (size_t b = 0; b < needed.size(); ++b) {
    needed[b] = graph->buffers[b].origin != BufferOrigin::kInside ||
                uses.buffer(static_cast<int32_t>(b)).escapes;
  }
  std::vector<bool> removed(graph->nodes.size());
  for (size_t i = graph->nodes.size(); i-- > 0;) {
    const GraphNode& node = graph->nodes[i];
    bool kept = has_effects(node) || (node.results.empty() && is_pure(node));
    node.for_each_written(
        [&](ValueId id) { kept = kept || needed[static_cast<size_t>(graph->values[id].buffer)]; });
    node.for_each_result([&](ValueId id) {
      const GraphBuffer& buffer = graph->buffer_of(id);
      // A view of memory from outside is needed only if a node uses it; it costs nothing.
      kept = kept || (buffer.origin != BufferOrigin::kInside) ||
             needed[static_cast<size_t>(graph->values[id].buffer)];
    });
    removed[i] = !kept;
    if (!kept) continue;
    node.for_each_operand(
        [&](ValueId id) { needed[static_cast<size_t>(graph->values[id].buffer)] = true; });
  }
  remove_nodes(graph, removed);
}

}  // namespace mytorch::graph
