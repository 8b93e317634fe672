#include "graph/capture/trace.h"

namespace mytorch::graph {

Trace slice(const Trace& trace, size_t begin, size_t end) {
  const Graph& from = trace.graph;
  const auto at = [](const auto& list, size_t i) {
    return list.begin() + static_cast<std::ptrdiff_t>(i);
  };
  Trace made;
  made.graph.values = from.values;
  made.graph.nodes.assign(at(from.nodes, begin), at(from.nodes, end));
  made.notes.assign(at(trace.notes, begin), at(trace.notes, end));
  made.storages = trace.storages;
  made.alignment = trace.alignment;
  for (const GraphBuffer& buffer : from.buffers) {
    made.graph.buffers.push_back({BufferOrigin::kInside, -1, {}, buffer.device, buffer.bytes});
  }
  std::vector<bool> seen(from.buffers.size());
  for (const GraphNode& node : made.graph.nodes) {
    node.for_each_operand([&](ValueId id) {
      const auto b = static_cast<size_t>(from.values[id].buffer);
      if (seen[b]) return;
      seen[b] = true;
      made.graph.buffers[b].origin = BufferOrigin::kArgument;
      made.graph.buffers[b].index = static_cast<int32_t>(made.graph.arguments.size());
      made.graph.arguments.push_back(id);
    });
    node.for_each_result(
        [&](ValueId id) { seen[static_cast<size_t>(from.values[id].buffer)] = true; });
  }
  return made;
}

}  // namespace mytorch::graph
