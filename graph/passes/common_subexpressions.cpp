// Merges nodes that compute equal values: the same pure operator of the same operands, or the same
// copy or conversion of one, which nothing has written in between.
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/ir/copies.h"
#include "graph/ir/replacing.h"
#include "graph/ir/uses.h"
#include "graph/passes/passes.h"

namespace mytorch::graph {
namespace {

class SubexpressionMerging {
 public:
  explicit SubexpressionMerging(Graph* graph)
      : graph_(*graph), uses_(*graph), replacing_(graph), version_(graph->buffers.size()) {}

  void run() {
    std::vector<bool> removed(graph_.nodes.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      GraphNode& node = graph_.nodes[i];
      replacing_.rename(&node);
      node.for_each_written([&](ValueId id) { ++version_[buffer_of(id)]; });
      if (const std::optional<BufferCopy> copy = copy_of(graph_, uses_, static_cast<int32_t>(i));
          copy.has_value()) {
        removed[i] = merge(*copy);
        continue;
      }
      if (!is_pure(node) || node.results.empty()) continue;
      const auto [at, added] = first_.try_emplace(key_of(node), i);
      if (added || !merge(graph_.nodes[at->second], node)) continue;
      removed[i] = true;
    }
    remove_nodes(&graph_, removed);
    replacing_.finish();
  }

 private:
  size_t buffer_of(ValueId id) const { return static_cast<size_t>(graph_.values[id].buffer); }

  // Returns a text that is equal for nodes that compute the same.
  std::string key_of(const GraphNode& node) const {
    std::string key = absl::StrCat(node.grad_mode, " ", node.wanted, " ", call_text(node));
    node.for_each_operand(
        [&](ValueId id) { absl::StrAppend(&key, " ", id, ".", version_[buffer_of(id)]); });
    return key;
  }

  // Makes the results of `first` those of `node`, if nobody can tell.
  bool merge(const GraphNode& first, const GraphNode& node) {
    std::vector<std::pair<ValueId, ValueId>> pairs;
    for (size_t r = 0; r < node.results.size(); ++r) {
      const Arg &a = first.results[r], &b = node.results[r];
      if (a.values.size() != b.values.size()) return false;
      for (size_t k = 0; k < a.values.size(); ++k) {
        if ((a.values[k] == kNoValue) != (b.values[k] == kNoValue)) return false;
        if (a.values[k] != kNoValue) pairs.emplace_back(a.values[k], b.values[k]);
      }
    }
    for (const auto& [a, b] : pairs) {
      const size_t x = buffer_of(a), y = buffer_of(b);
      if (x == y) continue;  // views of one buffer
      const BufferUses& of_a = uses_.buffer(static_cast<int32_t>(x));
      const BufferUses& of_b = uses_.buffer(static_cast<int32_t>(y));
      if (graph_.buffers[x].origin != BufferOrigin::kInside ||
          graph_.buffers[y].origin != BufferOrigin::kInside || !of_a.written.empty() ||
          !of_b.written.empty() || of_b.escapes ||
          !same_layout(graph_.values[a], graph_.values[b])) {
        return false;
      }
    }
    for (const auto& [a, b] : pairs) replacing_.replace(b, a);
    return true;
  }
  // The same for a copy or conversion and an earlier one of the same value. Neither is written.
  bool merge(const BufferCopy& copy) {
    const ValueInfo& to = graph_.values[copy.to];
    const std::string key = absl::StrCat(copy.from, ".", version_[buffer_of(copy.from)], " ",
                                         dtype_name(to.dtype), " ", absl::StrJoin(to.strides, ","));
    const auto [at, added] = copies_.try_emplace(key, copy.to);
    if (added || uses_.of(copy.to).escapes) return false;
    replacing_.replace(copy.to, at->second);
    return true;
  }
  static bool same_layout(const ValueInfo& a, const ValueInfo& b) {
    return same_geometry(a, b) && a.offset == b.offset;
  }

  Graph& graph_;
  const GraphUses uses_;  // before values are merged
  Replacing replacing_;
  std::vector<int> version_;  // of each buffer: the writes so far
  absl::flat_hash_map<std::string, size_t> first_;
  absl::flat_hash_map<std::string, ValueId> copies_;
};

}  // namespace

void merge_common_subexpressions(Graph* graph) { SubexpressionMerging(graph).run(); }

}  // namespace mytorch::graph
