// Removes copies that nobody needs: those of memory that stays as it is until the copy was read for
// the last time, in the same order of strides, and those of values onto themselves.
#include <algorithm>
#include <string_view>
#include <vector>

#include "graph/ir/copies.h"
#include "graph/ir/replacing.h"
#include "graph/ir/uses.h"
#include "graph/passes/passes.h"

namespace mytorch::graph {
namespace {

// Returns whether the users of a copy may use what it copies.
bool is_needless(const Graph& graph, const GraphUses& uses, const BufferCopy& copy) {
  const ValueInfo& source = graph.values[static_cast<size_t>(copy.from)];
  const ValueInfo& target = graph.values[static_cast<size_t>(copy.to)];
  if (!same_geometry(source, target) ||
      !can_move(graph, target.buffer, begin_of(source) - begin_of(target))) {
    return false;
  }
  const BufferUses &from = uses.of(copy.from), &to = uses.of(copy.to);
  int32_t last = copy.node;
  for (const int32_t at : to.read) last = std::max(last, at);
  if (to.escapes) {
    // Results are memory of their own: the copied value becomes the result, if nobody else has it.
    if (!from.is_single() || from.escapes || from.whole != copy.from ||
        graph.buffer_of(copy.from).bytes != graph.buffer_of(copy.to).bytes) {
      return false;
    }
    last = static_cast<int32_t>(graph.nodes.size());
  }
  return !uses.is_written(copy.from, copy.node, last + 1);
}

// Returns whether a node copies a value onto itself.
bool is_idle(const GraphNode& node) {
  return node.form == kFunction && std::string_view(node.op().base) == "copy_" &&
         node.args[0].kind == Arg::kTensor && node.args[1].kind == Arg::kTensor &&
         node.args[0].values == node.args[1].values;
}

int64_t remove_idle(Graph* graph) {
  std::vector<bool> removed;
  for (const GraphNode& node : graph->nodes) removed.push_back(is_idle(node));
  remove_nodes(graph, removed);
  return std::count(removed.begin(), removed.end(), true);
}

int64_t remove_needless(Graph* graph) {
  GraphUses uses(*graph);
  Replacing replacing(graph);
  std::vector<bool> removed(graph->nodes.size());
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    replacing.rename(&graph->nodes[i]);
    const auto copy = copy_of(*graph, uses, static_cast<int32_t>(i));
    if (!copy.has_value() || !is_needless(*graph, uses, *copy)) continue;
    const auto buffer = [&](ValueId id) { return graph->values[static_cast<size_t>(id)].buffer; };
    uses.join(buffer(copy->to), buffer(copy->from));
    replacing.replace(copy->to, copy->from);
    removed[i] = true;
  }
  replacing.finish();
  remove_nodes(graph, removed);
  return std::count(removed.begin(), removed.end(), true);
}

}  // namespace

void remove_copies(Recorded* recorded, const PassOptions&, Fired* fired) {
  int64_t count = remove_idle(&recorded->graph);
  // A copy that reads another one, or is read later than that, may be needless without it.
  while (const int64_t more = remove_needless(&recorded->graph)) count += more;
  if (count > 0) (*fired)["view-copies"] += count;
}

}  // namespace mytorch::graph
