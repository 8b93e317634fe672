#include "graph/rules/rewrite.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/types/errors.h"
#include "graph/ir/replacing.h"
#include "graph/ir/switches.h"
#include "graph/ir/uses.h"
#include "graph/rules/match.h"
#include "graph/rules/replacement.h"
#include "mytorch/check.h"

namespace mytorch::graph {
namespace {

class GraphRewriter {
 public:
  GraphRewriter(Graph* graph, const std::vector<const Rule*>& rules, CompileMode mode, Fired* fired)
      : graph_(*graph), fired_(*fired), uses_(std::make_unique<GraphUses>(*graph)) {
    for (const Rule* rule : rules) {
      if (!is_allowed(rule->mode, mode)) continue;
      for (const Pattern::Overload& each : rule->pattern.overloads) {
        by_operator_[each.entry].push_back(rule);
      }
    }
  }

  void run() {
    // Each rule should make a graph simpler; those that undo each other end here.
    size_t left = 16 * graph_.nodes.size() + 64;
    for (bool changed = true; changed && left > 0;) {
      changed = false;
      for (size_t i = 0; i < graph_.nodes.size() && left > 0; ++i) {
        if (!apply_any(static_cast<int32_t>(i))) continue;
        changed = true;
        --left;
      }
    }
  }

 private:
  bool apply_any(int32_t root) {
    const auto found = by_operator_.find(graph_.nodes[static_cast<size_t>(root)].entry);
    if (found == by_operator_.end()) return false;
    for (const Rule* rule : found->second) {
      const auto apply = [&](const PatternMatch& match) { return apply_match(*rule, match); };
      if (!find_matches(graph_, *uses_, rule->pattern, root, apply)) continue;
      ++fired_[rule->name];
      return true;
    }
    return false;
  }

  bool apply_match(const Rule& rule, const PatternMatch& match) {
    if (!is_private(rule, match) || !holds(rule, match)) return false;
    const auto [first, last] = std::minmax_element(match.nodes.begin(), match.nodes.end());
    std::vector<ValueId> operands;
    for (const auto& [name, bound] : match.names) {
      if (bound.id == kNoValue || is_inside(match, bound.id)) continue;
      if (uses_->is_written(bound.id, *first, *last + 1)) return false;
      operands.push_back(bound.id);
    }
    // The replacement stands before the first use of what it gives, after what it uses.
    int32_t at = *last;
    const std::vector<ValueId> outputs = outputs_of(rule, match);
    for (const ValueId id : outputs) {
      for (const int32_t user : uses_->of(id).read) {
        if (!is_matched(match, user)) at = std::min(at, user);
      }
    }
    for (const ValueId id : operands) {
      if (uses_->of(id).producer >= at || uses_->is_written(id, at, *first)) return false;
    }
    std::string reason;
    std::optional<Replacement> replacement = record_replacement(graph_, rule, match, &reason);
    if (!replacement.has_value()) {
      if (dumps("rewrite")) {
        detail::tell(absl::StrCat("[compile] ", rule.name, " does not apply: ", reason));
      }
      return false;
    }
    if (uses_values_inside(match, *replacement) || !may_replace(*replacement, *first) ||
        !has_whole_elements(*replacement)) {
      return false;
    }
    commit(match, *replacement, at);
    return true;
  }

  static bool is_matched(const PatternMatch& match, int32_t node) {
    return std::find(match.nodes.begin(), match.nodes.end(), node) != match.nodes.end();
  }
  // Returns whether a node of the match makes a value.
  bool is_inside(const PatternMatch& match, ValueId id) const {
    const int32_t producer = uses_->of(id).producer;
    return producer >= 0 && is_matched(match, producer);
  }

  // The values that the replacement gives.
  std::vector<ValueId> outputs_of(const Rule& rule, const PatternMatch& match) const {
    const GraphNode& root = graph_.nodes[static_cast<size_t>(match.nodes[0])];
    std::vector<ValueId> found;
    const auto add = [&](const std::string& name) {
      if (name == "_") return;
      const int index = result_index(name);
      const auto at = static_cast<size_t>(index);
      if (index >= 0 && (at >= root.results.size() || root.results[at].kind != Arg::kTensor))
        return;
      const ValueId id = index < 0 ? match.find(name)->id : root.results[at].values[0];
      if (id != kNoValue) found.push_back(id);
    };
    if (rule.to.names.empty()) add("result");
    for (const std::string& name : rule.to.names) add(name);
    return found;
  }

  // Returns whether nothing but the match uses what its nodes make, except what the replacement
  // gives.
  bool is_private(const Rule& rule, const PatternMatch& match) const {
    const std::vector<ValueId> outputs = outputs_of(rule, match);
    for (const int32_t index : match.nodes) {
      bool fine = true;
      graph_.nodes[static_cast<size_t>(index)].for_each_result([&](ValueId id) {
        const BufferUses& uses = uses_->of(id);
        if (!uses.is_single() || uses.producer != index) fine = false;
        if (std::find(outputs.begin(), outputs.end(), id) != outputs.end()) return;
        fine = fine && !uses.escapes &&
               std::all_of(uses.read.begin(), uses.read.end(),
                           [&](int32_t user) { return is_matched(match, user); });
      });
      if (!fine) return false;
    }
    return true;
  }

  bool holds(const Rule& rule, const PatternMatch& match) const {
    if (!rule.has_condition) return true;
    const Evaluator evaluator(
        graph_, [&](const std::string& name) -> const BoundName& { return *match.find(name); },
        nullptr);
    try {
      return evaluator.is_true(rule.condition);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      return false;  // a condition over a tensor, where the graph has a number
    }
  }

  // Returns whether the replacement reads a value that goes with the match.
  bool uses_values_inside(const PatternMatch& match, const Replacement& replacement) const {
    absl::flat_hash_set<ValueId> read;
    for (const GraphNode& node : replacement.graph.nodes) {
      node.for_each_operand([&](ValueId id) { read.insert(id); });
    }
    for (const ValueId id : replacement.graph.results) read.insert(id);
    for (size_t a = 0; a < replacement.operands.size(); ++a) {
      const int32_t buffer =
          replacement.graph.values[static_cast<size_t>(replacement.graph.arguments[a])].buffer;
      const bool used = std::any_of(read.begin(), read.end(), [&](ValueId id) {
        return replacement.graph.values[static_cast<size_t>(id)].buffer == buffer;
      });
      if (used && is_inside(match, replacement.operands[a])) return true;
    }
    return false;
  }

  // Returns whether nobody can tell the new values from the old ones: a value that is an operand,
  // or shares memory with another one, must neither leave the graph nor be written later.
  bool may_replace(const Replacement& replacement, int32_t first) const {
    absl::flat_hash_set<int32_t> seen_buffers;
    for (size_t i = 0; i < replacement.replaced.size(); ++i) {
      const ValueId result = replacement.graph.results[i];
      const int32_t buffer = replacement.graph.values[static_cast<size_t>(result)].buffer;
      const BufferUses& old = uses_->of(replacement.replaced[i]);
      const auto from = std::find_if(
          replacement.graph.arguments.begin(), replacement.graph.arguments.end(), [&](ValueId id) {
            return replacement.graph.values[static_cast<size_t>(id)].buffer == buffer;
          });
      if (from != replacement.graph.arguments.end()) {
        const ValueId operand =
            replacement.operands[static_cast<size_t>(from - replacement.graph.arguments.begin())];
        if (old.escapes ||
            uses_->is_written(operand, first, static_cast<int32_t>(graph_.nodes.size()))) {
          return false;
        }
        continue;
      }
      const bool shared = !seen_buffers.insert(buffer).second;
      const bool larger = replacement.graph.buffers[static_cast<size_t>(buffer)].bytes >
                          graph_.buffer_of(replacement.replaced[i]).bytes;
      if (old.escapes && (shared || larger)) return false;
    }
    return true;
  }

  const ValueInfo& value(ValueId id) const { return graph_.values[static_cast<size_t>(id)]; }

  // Returns whether views of the operands, in the replacement, and of the values that it replaces
  // begin with whole elements in the memory in which they come to lie.
  bool has_whole_elements(const Replacement& replacement) const {
    const Graph& from = replacement.graph;
    absl::flat_hash_map<int32_t, int64_t> begins;  // of the operands in their memories, by buffer
    for (size_t a = 0; a < replacement.operands.size(); ++a) {
      const int32_t buffer = from.values[static_cast<size_t>(from.arguments[a])].buffer;
      begins[buffer] = begin_of(value(replacement.operands[a]));
      if (!can_move(from, buffer, begins[buffer])) return false;
    }
    for (size_t i = 0; i < replacement.replaced.size(); ++i) {
      const ValueInfo& old = value(replacement.replaced[i]);
      const ValueInfo& now = from.values[static_cast<size_t>(from.results[i])];
      const auto begin = begins.find(now.buffer);
      const int64_t moved = begin_of(now) + (begin == begins.end() ? 0 : begin->second);
      if (!can_move(graph_, old.buffer, moved - begin_of(old))) return false;
    }
    return true;
  }

  void commit(const PatternMatch& match, const Replacement& replacement, int32_t at) {
    // The views of what the match made: a value needs none, and the first user may come later.
    std::vector<bool> removed(graph_.nodes.size());
    for (const int32_t index : match.nodes) {
      removed[static_cast<size_t>(index)] = true;
      graph_.nodes[static_cast<size_t>(index)].for_each_result([&](ValueId id) {
        for (const int32_t view : uses_->of(id).viewed) removed[static_cast<size_t>(view)] = true;
      });
    }
    const size_t before = graph_.nodes.size();
    const std::vector<ValueId> results = insert(&graph_, replacement, at);
    removed.insert(removed.begin() + at, graph_.nodes.size() - before, false);
    remove_nodes(&graph_, removed);
    Replacing replacing(&graph_);
    for (size_t i = 0; i < results.size(); ++i) {
      replacing.replace(replacement.replaced[i], results[i]);
    }
    replacing.finish();
    uses_ = std::make_unique<GraphUses>(graph_);
  }

  Graph& graph_;
  Fired& fired_;
  std::unique_ptr<GraphUses> uses_;
  absl::flat_hash_map<const OpEntry*, std::vector<const Rule*>> by_operator_;
};

}  // namespace

bool is_allowed(RuleMode rule, CompileMode mode) {
  return rule == RuleMode::kExact || mode == CompileMode::kFast ||
         (rule == RuleMode::kDefault && mode == CompileMode::kDefault);
}

void rewrite(Graph* graph, const std::vector<const Rule*>& rules, CompileMode mode, Fired* fired) {
  GraphRewriter(graph, rules, mode, fired).run();
}

}  // namespace mytorch::graph
