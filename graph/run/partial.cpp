#include "graph/run/partial.h"

#include <cstdint>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mytorch::graph {
namespace {

std::string several(size_t n, const char* what) {
  return absl::StrCat(n, " ", what, n == 1 ? "" : "s");
}

}  // namespace

std::string partial_text(const PlanParts& parts, size_t step, size_t nodes) {
  std::set<int32_t> written;  // memories
  for (size_t i = parts.num_kept; i < step; ++i) {
    written.insert(parts.steps[i].written.begin(), parts.steps[i].written.end());
  }
  for (size_t i = 0; i < nodes; ++i) {
    const GraphNode& node = parts.graph.nodes[parts.nodes[i].node];
    node.for_each_written(
        [&](ValueId id) { written.insert(parts.buffers[parts.graph.values[id].buffer]); });
  }
  std::vector<std::string> names;
  size_t outside = 0, grads = 0;
  for (size_t b = 0; b < parts.graph.buffers.size(); ++b) {
    if (!written.contains(parts.buffers[b])) continue;
    const GraphBuffer& buffer = parts.graph.buffers[b];
    outside += buffer.origin == BufferOrigin::kOutside ? 1 : 0;
    grads += buffer.origin == BufferOrigin::kGrad ? 1 : 0;
    if (buffer.origin == BufferOrigin::kArgument)
      names.push_back(absl::StrCat("argument ", buffer.index));
  }
  if (outside > 0) names.push_back(several(outside, "tensor") + " from outside");
  if (grads > 0) names.push_back(several(grads, "grad"));
  if (names.empty()) return "";
  return absl::StrCat("; the compiled call is partial: it failed at kernel ", step + 1, " of ",
                      parts.steps.size(), ", after it had written ", absl::StrJoin(names, ", "));
}

}  // namespace mytorch::graph
