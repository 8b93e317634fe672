// Drops what gives its operand: x * 1, a type that is widened and narrowed back, views of the shape
// that a tensor has. In kExact, only what keeps every bit.
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/ir/copies.h"
#include "graph/ir/uses.h"
#include "graph/passes/passes.h"
#include "graph/rules/rule.h"

namespace mytorch::graph {
namespace {

// A product with a complex 1 also multiplies by its imaginary 0, a complex sum adds one.
constexpr const char* kReal = "x.dtype != 'complex64' and x.dtype != 'complex128'";

// A result that is an operand keeps its type: 1.0 times an integer is no integer.
const std::vector<const Rule*>& identities() {
  static const auto* const found = [] {
    constexpr RuleMode kExact = RuleMode::kExact, kFast = RuleMode::kFast;
    constexpr RuleMode kDefault = RuleMode::kDefault;
    const Rewrite texts[] = {
        {"algebra: x * 1", "x * 1", "x", kReal, kExact},
        {"algebra: x / 1", "x / 1", "x", kReal, kExact},
        {"algebra: x - 0", "x - 0", "x", "", kExact},
        // -0.0 + 0 is 0, -0.0 + -0.0 is -0.0.
        {"algebra: x + -0", "x + -0.0", "x", kReal, kExact},
        {"algebra: x + 0 of integers", "x + 0", "x", absl::StrCat("not floating(x) and ", kReal),
         kExact},
        {"algebra: x + 0", "x + 0", "x", "", kFast},
        // A power is accurate, but nothing promises that each backend gives the bits of x.
        {"algebra: x ** 1", "pow(x, 1)", "x", kReal, kDefault},
        {"algebra: - - x", "-(-x)", "x", "", kExact},
        {"algebra: not not x", "logical_not(logical_not(x))", "x", "x.dtype == 'bool'", kExact},
        {"algebra: abs(abs(x))", "abs(abs(x))", "abs(x)", "", kExact},
        {"algebra: relu(relu(x))", "relu(relu(x))", "relu(x)", "", kExact},
        {"algebra: where(c, x, x)", "where(_, x, x)", "x", "", kExact},
    };
    auto* rules = new std::vector<const Rule*>;
    for (const Rewrite& text : texts) rules->push_back(new Rule(read_rule(text)));
    return rules;
  }();
  return *found;
}

// Lets copies read what a widening conversion before them read.
void join_casts(Graph* graph, Fired* fired) {
  const GraphUses uses(*graph);
  std::vector<std::optional<BufferCopy>> copies;  // by node
  std::vector<int32_t> copy_into(graph->buffers.size(), -1);
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    copies.push_back(copy_of(*graph, uses, static_cast<int32_t>(i)));
    if (!copies[i].has_value()) continue;
    copy_into[static_cast<size_t>(graph->values[static_cast<size_t>(copies[i]->to)].buffer)] =
        static_cast<int32_t>(i);
  }
  const auto type = [&](ValueId id) { return graph->values[static_cast<size_t>(id)].dtype; };
  for (std::optional<BufferCopy>& second : copies) {
    if (!second.has_value()) continue;
    const int32_t at =
        copy_into[static_cast<size_t>(graph->values[static_cast<size_t>(second->from)].buffer)];
    if (at < 0) continue;
    const BufferCopy& first = *copies[static_cast<size_t>(at)];
    // Conversions from floats to integers are only defined for what these can hold.
    const bool direct =
        type(first.from) == type(second->to) ||
        (is_floating_point(type(first.from)) && is_floating_point(type(second->to)));
    if (first.to != second->from || !direct || !is_widening(type(first.from), type(first.to)) ||
        uses.is_written(first.from, first.node, second->node + 1)) {
      continue;
    }
    graph->nodes[static_cast<size_t>(second->node)].args[1] = Arg::tensor(first.from);
    second->from = first.from;
    ++(*fired)["algebra: casts"];
  }
}

// Removes views that give a value that there is already, or that nothing uses.
void drop_views(Graph* graph, Fired* fired) {
  std::vector<bool> used(graph->values.size()), removed(graph->nodes.size());
  std::vector<bool> known(graph->values.size()), again(graph->nodes.size());
  for (const ValueId id : graph->arguments) known[static_cast<size_t>(id)] = true;
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    again[i] = is_view(*graph, graph->nodes[i]);
    graph->nodes[i].for_each_result([&](ValueId id) {
      again[i] = again[i] && known[static_cast<size_t>(id)];
      known[static_cast<size_t>(id)] = true;
    });
  }
  const auto use = [&](ValueId id) {
    if (id != kNoValue) used[static_cast<size_t>(id)] = true;
  };
  for (const ValueId id : graph->results) use(id);
  for (const GradResult& grad : graph->grads) use(grad.grad);
  int64_t count = 0;
  for (size_t i = graph->nodes.size(); i-- > 0;) {
    const GraphNode& node = graph->nodes[i];
    if (is_view(*graph, node)) {
      bool needed = false;
      if (!again[i]) {
        node.for_each_result([&](ValueId id) { needed = needed || used[static_cast<size_t>(id)]; });
      }
      removed[i] = !needed;
      if (!needed) {
        ++count;
        continue;
      }
    }
    node.for_each_operand(use);
  }
  if (count > 0) (*fired)["algebra: views"] += count;
  remove_nodes(graph, removed);
}

}  // namespace

void simplify_algebra(Recorded* recorded, const PassOptions& options, Fired* fired) {
  join_casts(&recorded->graph, fired);
  rewrite(&recorded->graph, identities(), options.mode, fired);
  drop_views(&recorded->graph, fired);
}

}  // namespace mytorch::graph
