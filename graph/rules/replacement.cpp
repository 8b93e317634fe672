#include "graph/rules/replacement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/types/errors.h"
#include "graph/capture/capture.h"
#include "graph/formats/parse.h"
#include "graph/ir/uses.h"
#include "graph/rules/rule_eval.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops.h"
#include "mytorch/thread_state.h"

namespace mytorch::graph {
namespace {

const ValueInfo& geometry_of(const Graph& graph, ValueId id) {
  return graph.values[static_cast<size_t>(id)];
}

// Returns a tensor of zeros of a value's type and geometry.
Tensor zeros_of(const Graph& graph, ValueId id) {
  ValueInfo info = geometry_of(graph, id);
  info.offset = 0;
  const Span span = span_of(info);
  const Tensor memory =
      mytorch::zeros({span.end}, TensorOptions(info.dtype).device(graph.buffer_of(id).device));
  return mytorch::as_strided(memory, as_list(info.sizes), as_list(info.strides), 0);
}

// Returns which node result of the match a name of the replacement stands for.
ValueId replaced_by(const Graph& graph, const PatternMatch& match, const std::string& name) {
  const int index = result_index(name);
  if (index < 0) return match.find(name)->id;
  const GraphNode& root = graph.nodes[static_cast<size_t>(match.nodes[0])];
  const auto at = static_cast<size_t>(index);
  if (at >= root.results.size() || root.results[at].kind != Arg::kTensor) {
    fail(ErrorCode::kValue, "[rewrite] the root has no ", name);
  }
  return root.results[at].values[0];
}

}  // namespace

std::optional<Replacement> record_replacement(const Graph& graph, const Rule& rule,
                                              const PatternMatch& match, std::string* reason) {
  Replacement found;
  std::vector<Tensor> tensors;
  // Errors of operators say that the rule does not hold here.
  try {
    // Below autocast and autograd, as the graph was recorded.
    const LayerMask masked(~uint32_t{kLayerCapture});
    const NoGradGuard no_grad;
    for (const auto& [name, bound] : match.names) {
      if (bound.id == kNoValue ||
          std::count(found.operands.begin(), found.operands.end(), bound.id) != 0) {
        continue;
      }
      found.operands.push_back(bound.id);
      tensors.push_back(zeros_of(graph, bound.id));
    }
    const auto tensor_of = [&](ValueId id) {
      const auto at = std::find(found.operands.begin(), found.operands.end(), id);
      return tensors[static_cast<size_t>(at - found.operands.begin())];
    };
    std::vector<Tensor> results;
    OperatorCapture capture(tensors);
    const Evaluator evaluator(
        graph, [&](const std::string& name) -> const BoundName& { return *match.find(name); },
        tensor_of);
    const std::vector<Value> values = evaluator.values(rule.to.value);
    const std::vector<std::string> names =
        rule.to.names.empty() ? std::vector<std::string>{"result"} : rule.to.names;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == "_") continue;
      const auto* const tensor =
          i < values.size() ? std::get_if<Tensor>(&values[i].variant()) : nullptr;
      if (tensor == nullptr || !tensor->defined()) {
        *reason = absl::StrCat("the replacement gives no ", names[i]);
        return std::nullopt;
      }
      const ValueId replaced = replaced_by(graph, match, names[i]);
      if (replaced == kNoValue) continue;
      found.replaced.push_back(replaced);
      results.push_back(*tensor);
    }
    found.graph = capture.finish(results).graph;
  } catch (const Error& error) {
    *reason = error.what();
    return std::nullopt;
  }
  for (const GraphBuffer& buffer : found.graph.buffers) {
    if (buffer.origin == BufferOrigin::kOutside) {
      *reason = "the replacement refers to a tensor from outside";
      return std::nullopt;
    }
  }
  for (const GraphNode& node : found.graph.nodes) {
    bool writes = false;
    node.for_each_written([&](ValueId id) {
      writes = writes || found.graph.buffer_of(id).origin == BufferOrigin::kArgument;
    });
    if (!writes) continue;
    *reason = "the replacement writes an operand";
    return std::nullopt;
  }
  for (size_t i = 0; i < found.replaced.size(); ++i) {
    const ValueInfo& old = geometry_of(graph, found.replaced[i]);
    const ValueInfo& now = geometry_of(found.graph, found.graph.results[i]);
    if (same_geometry(old, now)) continue;
    *reason = "the replacement has another type, shape or order of strides";
    return std::nullopt;
  }
  return found;
}

std::vector<ValueId> insert(Graph* graph, const Replacement& replacement, int32_t at) {
  const Graph& from = replacement.graph;
  std::vector<int32_t> buffers(from.buffers.size(), -1);
  std::vector<int64_t> begins(from.buffers.size());  // in bytes
  for (size_t a = 0; a < replacement.operands.size(); ++a) {
    const ValueInfo& info = geometry_of(*graph, replacement.operands[a]);
    const auto buffer = static_cast<size_t>(geometry_of(from, from.arguments[a]).buffer);
    buffers[buffer] = info.buffer;
    begins[buffer] = begin_of(info);
  }
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b] >= 0) continue;
    buffers[b] = static_cast<int32_t>(graph->buffers.size());
    graph->buffers.push_back(from.buffers[b]);
  }
  std::vector<ValueId> values(from.values.size());
  for (size_t a = 0; a < replacement.operands.size(); ++a) {
    values[static_cast<size_t>(from.arguments[a])] = replacement.operands[a];
  }
  for (size_t v = 0; v < from.values.size(); ++v) {
    if (std::count(from.arguments.begin(), from.arguments.end(), static_cast<ValueId>(v)) != 0) {
      continue;
    }
    ValueInfo info = from.values[v];
    const auto buffer = static_cast<size_t>(info.buffer);
    info.buffer = buffers[buffer];
    info.offset += begins[buffer] / element_size(info.dtype);
    values[v] = static_cast<ValueId>(graph->values.size());
    graph->values.push_back(std::move(info));
  }
  std::vector<GraphNode> nodes = from.nodes;
  for (GraphNode& node : nodes) {
    for (std::vector<Arg>* args : {&node.args, &node.results}) {
      for (Arg& arg : *args) {
        for (ValueId& id : arg.values) {
          if (id != kNoValue) id = values[static_cast<size_t>(id)];
        }
      }
    }
  }
  graph->nodes.insert(graph->nodes.begin() + at, std::make_move_iterator(nodes.begin()),
                      std::make_move_iterator(nodes.end()));
  std::vector<ValueId> results;
  for (const ValueId id : from.results) results.push_back(values[static_cast<size_t>(id)]);
  return results;
}

}  // namespace mytorch::graph
