#include "graph/run/partial.h"

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mytorch::graph {
namespace {

std::string several(size_t n, const char* what) {
  return absl::StrCat(n, " ", what, n == 1 ? "" : "s");
}

// Names the memories from outside of the graph among its buffers; "" if there are none.
std::string outside_names(const Graph& graph,
                          const std::function<bool(size_t buffer)>& is_written) {
  std::vector<std::string> names;
  size_t outside = 0, grads = 0;
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    if (!is_written(b)) continue;
    const GraphBuffer& buffer = graph.buffers[b];
    outside += buffer.origin == BufferOrigin::kOutside ? 1 : 0;
    grads += buffer.origin == BufferOrigin::kGrad ? 1 : 0;
    if (buffer.origin == BufferOrigin::kArgument)
      names.push_back(absl::StrCat("argument ", buffer.index));
  }
  if (outside > 0) names.push_back(several(outside, "tensor") + " from outside");
  if (grads > 0) names.push_back(several(grads, "grad"));
  return absl::StrJoin(names, ", ");
}

std::string names_in(const PlanParts& parts, const std::set<int32_t>& memories) {
  return outside_names(parts.graph, [&](size_t b) { return memories.contains(parts.buffers[b]); });
}

// Adds what the steps between two write.
void add_written(const PlanParts& parts, size_t begin, size_t end, std::set<int32_t>* memories) {
  for (size_t i = begin; i < end; ++i) {
    memories->insert(parts.steps[i].written.begin(), parts.steps[i].written.end());
  }
}

constexpr const char* kPartial = "; the compiled call is partial: ";

}  // namespace

std::string partial_text(const PlanParts& parts, size_t step, size_t nodes) {
  std::set<int32_t> written;  // memories
  add_written(parts, parts.num_kept, step, &written);
  for (size_t i = 0; i < nodes; ++i) {
    const GraphNode& node = parts.graph.nodes[parts.nodes[i].node];
    node.for_each_written(
        [&](ValueId id) { written.insert(parts.buffers[parts.graph.values[id].buffer]); });
  }
  const std::string names = names_in(parts, written);
  if (names.empty()) return "";
  return absl::StrCat(kPartial, "it failed at kernel ", step + 1, " of ", parts.steps.size(),
                      ", after it had written ", names);
}

std::string partial_first_text(const Graph& graph, size_t nodes) {
  std::set<int32_t> written;  // buffers
  for (size_t i = 0; i < nodes; ++i) {
    graph.nodes[i].for_each_written([&](ValueId id) { written.insert(graph.values[id].buffer); });
  }
  const std::string names =
      outside_names(graph, [&](size_t b) { return written.contains(static_cast<int32_t>(b)); });
  if (names.empty()) return "";
  const std::string where = nodes < graph.nodes.size() ? absl::StrCat("at operator ", nodes + 1,
                                                                      " of ", graph.nodes.size())
                                                       : "when its operators had run";
  return absl::StrCat(kPartial, "it failed ", where, ", after it had written ", names);
}

std::string partial_launch_text(const PlanParts& parts) {
  std::set<int32_t> written;  // memories
  add_written(parts, parts.num_kept, parts.steps.size(), &written);
  const std::string names = names_in(parts, written);
  if (names.empty()) return "";
  return absl::StrCat(kPartial, "its device graph failed, which may have written ", names);
}

}  // namespace mytorch::graph
