#include "graph/passes/recomputation.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "graph/ir/copies.h"
#include "graph/ir/min_cut.h"
#include "graph/ir/uses.h"

namespace mytorch::graph {
namespace {

// Operators besides pointwise ones that take about the time of reading their operands.
constexpr std::string_view kCheap[] = {"native_layer_norm", "native_rms_norm", "softmax",
                                       "log_softmax"};

class Recomputation {
 public:
  Recomputation(Graph* graph, size_t begin, CompileMode mode)
      : graph_(*graph),
        begin_(static_cast<int32_t>(begin)),
        mode_(mode),
        uses_(*graph),
        memories_(graph->buffers.size()) {}

  // Returns the bytes that live no longer.
  uint64_t run(double budget) {
    find_needed();
    find_recipes();
    choose();
    keep_some(budget);
    const uint64_t freed = find_places();
    if (freed > 0) apply();
    return freed;
  }

  int64_t added() const { return added_; }

 private:
  // Memory that a node before the border makes.
  struct MemoryInfo {
    int32_t first = -1;               // node behind the border that uses it
    std::optional<GraphNode> recipe;  // computes it, from other memories
    bool chosen = false;              // is computed again
  };

  int32_t buffer_of(ValueId id) const { return graph_.values[static_cast<size_t>(id)].buffer; }
  MemoryInfo& memory(ValueId id) { return memories_[static_cast<size_t>(buffer_of(id))]; }
  uint64_t bytes(size_t buffer) const { return graph_.buffers[buffer].bytes; }

  // Calls f(buffer) for the memories that a recipe reads.
  template <class F>
  void for_each_read(const GraphNode& recipe, F f) const {
    for (size_t a = 0; a < recipe.args.size(); ++a) {
      if (recipe.writes(a)) continue;
      for (const ValueId id : recipe.args[a].values) {
        if (id != kNoValue) f(static_cast<size_t>(buffer_of(id)));
      }
    }
  }

  void find_needed() {
    for (size_t i = static_cast<size_t>(begin_); i < graph_.nodes.size(); ++i) {
      const auto use = [&](ValueId id) {
        MemoryInfo& found = memory(id);
        if (found.first < 0) found.first = static_cast<int32_t>(i);
      };
      graph_.nodes[i].for_each_operand(use);
      graph_.nodes[i].for_each_result(use);
    }
  }

  // Whether a memory lives to the end anyway, or does not belong to the graph.
  bool is_free(size_t buffer) const {
    return graph_.buffers[buffer].origin != BufferOrigin::kInside ||
           uses_.buffer(static_cast<int32_t>(buffer)).escapes;
  }

  // Whether nothing writes what a recipe reads until nothing needs its result.
  bool is_constant(const GraphNode& recipe, int32_t from) const {
    bool fine = true;
    for_each_read(recipe, [&](size_t buffer) {
      const std::vector<int32_t>& written = uses_.buffer(static_cast<int32_t>(buffer)).written;
      if (graph_.buffers[buffer].origin == BufferOrigin::kInside) {
        // Copies into new memory come before all that reads it.
        fine = fine && (written.empty() || (written.size() == 1 && written[0] < from));
        return;
      }
      // Parameters are written at the end, by optimizers.
      for (const int32_t at : written) fine = fine && (at < from || at > last_first_);
    });
    return fine;
  }

  void find_recipes() {
    for (size_t b = 0; b < memories_.size(); ++b) {
      if (is_needed(b)) last_first_ = std::max(last_first_, memories_[b].first);
    }
    for (int32_t i = 0; i < begin_; ++i) {
      const GraphNode& node = graph_.nodes[static_cast<size_t>(i)];
      if (is_view(graph_, node)) continue;
      if (const std::optional<BufferCopy> copy = copy_of(graph_, uses_, i); copy.has_value()) {
        give(copy->to, node, i);
        continue;
      }
      if (!is_pure(node) || node.op().dynamic) continue;
      const std::string_view base = node.op().base;
      if (node.op().meaning == Meaning::kPointwise ||
          std::find(std::begin(kCheap), std::end(kCheap), base) != std::end(kCheap)) {
        node.for_each_result([&](ValueId id) {
          // The statistics of a norm are small.
          if (node.results[0].values[0] == id || node.results.size() == 1) give(id, node, i);
        });
        continue;
      }
      if (mode_ == CompileMode::kExact) continue;
      // A result that follows from another one, up to rounding.
      if (base == "linear_gelu_forward" && has_result(node, 1)) {
        give_call("gelu", node, i, {Arg::tensor(node.results[1].values[0]), node.args[3]}, {0});
      } else if (base == "native_add_layer_norm" && has_result(node, 1)) {
        give_call("native_layer_norm", node, i,
                  {Arg::tensor(node.results[1].values[0]), node.args[2], node.args[3], node.args[4],
                   node.args[5]},
                  {0, 2, 3});
      } else if (base == "native_add_rms_norm" && has_result(node, 1)) {
        give_call(
            "native_rms_norm", node, i,
            {Arg::tensor(node.results[1].values[0]), node.args[2], node.args[3], node.args[4]},
            {0, 2});
      }
    }
  }

  // A result that is computed, and whole. One that a call leaves out is empty instead, and so of
  // another shape than the first.
  bool has_result(const GraphNode& node, size_t at) const {
    const ValueId first = node.results[0].values[0], id = node.results[at].values[0];
    return first != kNoValue && id != kNoValue && is_whole(graph_, id) &&
           graph_.values[id].sizes == graph_.values[first].sizes;
  }

  void give_call(const char* name, const GraphNode& node, int32_t index, std::vector<Arg> args,
                 std::initializer_list<size_t> results) {
    const ValueId result = node.results[0].values[0];
    if (result == kNoValue || !is_whole(graph_, result)) return;
    GraphNode call;
    call.entry = find_op(name);
    call.args = std::move(args);
    for (const size_t at : results) call.results.push_back(node.results[at]);
    give(result, std::move(call), index);
  }

  // Notes how to compute the memory of a value, which a node makes.
  void give(ValueId id, GraphNode recipe, int32_t index) {
    const auto buffer = static_cast<size_t>(buffer_of(id));
    const BufferUses& uses = uses_.of(id);
    const bool single = uses.producer == index ? uses.is_single() && uses.whole == id
                                               : uses.producer < 0 && uses.written.size() == 1;
    if (!single || is_free(buffer) || !is_constant(recipe, index)) return;
    recipe.grad_mode = false;
    memories_[buffer].recipe = std::move(recipe);
  }

  // Finds the memories that must stay, by a minimal cut between what has no recipe and what is
  // needed; all others that are needed are chosen.
  void choose() {
    std::vector<uint64_t> weights;
    for (size_t b = 0; b < memories_.size(); ++b) weights.push_back(bytes(b));
    MinCut cut(std::move(weights));
    for (size_t b = 0; b < memories_.size(); ++b) {
      if (is_free(b)) continue;
      if (is_needed(b)) cut.sink(static_cast<int32_t>(b));
      if (!memories_[b].recipe.has_value()) {
        cut.source(static_cast<int32_t>(b));
        continue;
      }
      for_each_read(*memories_[b].recipe, [&](size_t read) {
        if (!is_free(read)) cut.edge(static_cast<int32_t>(read), static_cast<int32_t>(b));
      });
    }
    const std::vector<bool> stays = cut.run();
    std::vector<size_t> wanted;
    const auto want = [&](size_t b) {
      if (stays[b] || is_free(b) || memories_[b].chosen || !memories_[b].recipe.has_value()) return;
      memories_[b].chosen = true;
      wanted.push_back(b);
    };
    for (size_t b = 0; b < memories_.size(); ++b) {
      if (is_needed(b)) want(b);
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      const GraphNode& recipe = *memories_[wanted[i]].recipe;
      for_each_read(recipe, want);
    }
  }

  // Whether nodes behind the border use a memory that was made before it.
  bool is_needed(size_t b) const {
    if (memories_[b].first < 0 || is_free(b)) return false;
    const BufferUses& uses = uses_.buffer(static_cast<int32_t>(b));
    return (uses.producer >= 0 && uses.producer < begin_) ||
           (!uses.written.empty() && uses.written[0] < begin_);
  }

  int32_t producer_of(size_t b) const {
    const BufferUses& uses = uses_.buffer(static_cast<int32_t>(b));
    return uses.producer >= 0 ? uses.producer : uses.written[0];
  }

  // Returns the chosen memories that are needed, or from which others of these follow, as they were
  // made: recipes read what is made earlier.
  std::vector<size_t> in_order() const {
    std::vector<size_t> order;
    for (size_t b = 0; b < memories_.size(); ++b) {
      if (memories_[b].chosen) order.push_back(b);
    }
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return producer_of(a) > producer_of(b); });
    std::vector<bool> used(memories_.size());
    std::vector<size_t> found;
    for (const size_t b : order) {
      if (!used[b] && !is_needed(b)) continue;
      found.push_back(b);
      for_each_read(*memories_[b].recipe, [&](size_t read) { used[read] = true; });
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

  // Returns the bytes that live across the border: of what is needed and stays, and of what is read
  // to compute the rest.
  uint64_t living() const {
    std::vector<bool> lives(memories_.size());
    for (size_t b = 0; b < memories_.size(); ++b) lives[b] = is_needed(b) && !memories_[b].chosen;
    for (const size_t b : in_order()) {
      for_each_read(*memories_[b].recipe,
                    [&](size_t read) { lives[read] = !memories_[read].chosen && !is_free(read); });
    }
    uint64_t sum = 0;
    for (size_t b = 0; b < memories_.size(); ++b) sum += lives[b] ? bytes(b) : 0;
    return sum;
  }

  // Lets memories stay as the budget allows, those first that cost the most for their bytes.
  void keep_some(double budget) {
    for (size_t b = 0; b < memories_.size(); ++b) before_ += is_needed(b) ? bytes(b) : 0;
    const auto allowed = static_cast<uint64_t>(budget * static_cast<double>(before_));
    std::vector<std::pair<double, size_t>> order;
    for (size_t b = 0; b < memories_.size(); ++b) {
      if (!memories_[b].chosen) continue;
      double moved = 1;
      for_each_read(*memories_[b].recipe,
                    [&](size_t read) { moved += static_cast<double>(bytes(read)); });
      order.emplace_back(-moved / static_cast<double>(bytes(b) + 1), b);
    }
    std::stable_sort(order.begin(), order.end());
    uint64_t lives = living();
    for (const auto& [cost, b] : order) {
      if (lives + bytes(b) > allowed) continue;
      memories_[b].chosen = false;
      const uint64_t now = living();
      if (now > allowed) {
        memories_[b].chosen = true;
      } else {
        lives = now;
      }
    }
  }

  // Finds before which node each chosen memory is computed: the first that needs it. Returns the
  // bytes that live no longer.
  uint64_t find_places() {
    order_ = in_order();
    const uint64_t now = living();
    if (now >= before_) return 0;
    for (auto b = order_.rbegin(); b != order_.rend(); ++b) {
      const int32_t first = memories_[*b].first;
      for_each_read(*memories_[*b].recipe, [&](size_t read) {
        MemoryInfo& from = memories_[read];
        if (from.chosen && (from.first < 0 || from.first > first)) from.first = first;
      });
    }
    return before_ - now;
  }

  // Returns the value in new memory that takes the place of one that is computed again.
  ValueId again(ValueId id) {
    const auto [at, added] = again_.try_emplace(id, static_cast<ValueId>(graph_.values.size()));
    if (!added) return at->second;
    ValueInfo info = graph_.values[static_cast<size_t>(id)];
    const auto [memory, fresh] =
        memory_again_.try_emplace(info.buffer, static_cast<int32_t>(graph_.buffers.size()));
    if (fresh)
      graph_.buffers.push_back(GraphBuffer(graph_.buffers[static_cast<size_t>(info.buffer)]));
    info.buffer = memory->second;
    graph_.values.push_back(std::move(info));
    return at->second;
  }

  void rename(std::vector<Arg>* args, bool all) {
    for (Arg& arg : *args) {
      for (ValueId& id : arg.values) {
        if (id == kNoValue || static_cast<size_t>(buffer_of(id)) >= memories_.size()) continue;
        if (all || memory(id).chosen) id = again(id);
      }
    }
  }

  void apply() {
    for (size_t i = static_cast<size_t>(begin_); i < graph_.nodes.size(); ++i) {
      rename(&graph_.nodes[i].args, false);
      rename(&graph_.nodes[i].results, false);
    }
    std::vector<std::vector<GraphNode>> ahead(graph_.nodes.size());
    for (const size_t b : order_) {
      MemoryInfo& each = memories_[b];
      GraphNode node = *std::move(each.recipe);
      rename(&node.args, false);
      // Other results, too, are new.
      rename(&node.results, true);
      ahead[static_cast<size_t>(each.first)].push_back(std::move(node));
      ++added_;
    }
    std::vector<GraphNode> nodes;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (GraphNode& node : ahead[i]) nodes.push_back(std::move(node));
      nodes.push_back(std::move(graph_.nodes[i]));
    }
    graph_.nodes = std::move(nodes);
  }

  Graph& graph_;
  const int32_t begin_;
  const CompileMode mode_;
  const GraphUses uses_;
  std::vector<MemoryInfo> memories_;  // by buffer
  std::vector<size_t> order_;         // the chosen memories, as they were made
  int32_t last_first_ = -1;           // the last place at which something may be computed again
  uint64_t before_ = 0;
  int64_t added_ = 0;
  absl::flat_hash_map<ValueId, ValueId> again_;
  absl::flat_hash_map<int32_t, int32_t> memory_again_;
};

// Returns the node behind which the most memory is in use: behind it, backward begins to give
// memory back.
size_t fullest(const Graph& graph) {
  const GraphUses uses(graph);
  std::vector<int64_t> change(graph.nodes.size() + 1);
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const BufferUses& of = uses.buffer(static_cast<int32_t>(b));
    if (graph.buffers[b].origin != BufferOrigin::kInside || of.escapes) continue;
    int32_t first = of.producer, last = of.producer;
    for (const std::vector<int32_t>* list : {&of.written, &of.read}) {
      if (list->empty()) continue;
      first = first < 0 ? list->front() : std::min(first, list->front());
      last = std::max(last, list->back());
    }
    if (first < 0) continue;
    change[static_cast<size_t>(first)] += static_cast<int64_t>(graph.buffers[b].bytes);
    change[static_cast<size_t>(last) + 1] -= static_cast<int64_t>(graph.buffers[b].bytes);
  }
  int64_t lives = 0, most = 0;
  size_t found = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    lives += change[i];
    if (lives <= most) continue;
    most = lives;
    found = i;
  }
  return found + 1;
}

}  // namespace

void recompute_behind(Graph* graph, size_t begin, const PassOptions& options, Fired* fired) {
  if (options.memory_budget >= 1 || is_disabled("recomputation")) return;
  Recomputation recomputation(graph, begin, options.mode);
  const uint64_t freed = recomputation.run(options.memory_budget);
  if (freed == 0) return;
  (*fired)["recomputation"] += recomputation.added();
  (*fired)["recomputation: bytes"] += static_cast<int64_t>(freed);
}

void recompute_values(Recorded* recorded, const PassOptions& options, Fired* fired) {
  if (options.memory_budget >= 1 || recorded->graph.nodes.empty()) return;
  recompute_behind(&recorded->graph, fullest(recorded->graph), options, fired);
}

}  // namespace mytorch::graph
