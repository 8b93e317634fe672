#include "graph/ir/ir.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace mytorch::graph {

bool GraphNode::random() const {
  for (int i = 0; i < op().num_args; ++i) {
    if (op().args[i].type == ArgType::kGenerator) return true;
  }
  return false;
}

std::string GraphNode::name() const {
  std::string full = op().name;
  if (form == kFunction) return full;
  const size_t base = std::string_view(op().base).size();
  return absl::StrCat(op().base, form == kInplace ? "_" : "_out", full.substr(base));
}

bool overwrites_argument(const OpInfo& op) {
  const std::string_view base = op.base;
  if (base == "copy_" || base == "fill_" || base == "zero_") return true;
  // Random fills: normal_, uniform_, ...
  return op.args[0].written && std::any_of(op.args, op.args + op.num_args, [](const ArgInfo& arg) {
           return arg.type == ArgType::kGenerator;
         });
}

bool GraphNode::overwrites(size_t arg) const {
  if (form == kOut && static_cast<int>(arg) < outs()) return true;
  return form == kFunction && arg == 0 && op().num_args > 0 && overwrites_argument(op());
}

bool is_pure(const GraphNode& node) {
  const OpInfo& op = node.op();
  if (node.form != kFunction || node.random() || op.custom != nullptr) return false;
  return std::none_of(op.args, op.args + op.num_args, [](const ArgInfo& arg) {
    return arg.written || arg.type == ArgType::kHandle || arg.type == ArgType::kGenerator;
  });
}

void remove_nodes(Graph* graph, const std::vector<bool>& removed) {
  std::vector<GraphNode> kept;
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    if (!removed[i]) kept.push_back(std::move(graph->nodes[i]));
  }
  graph->nodes = std::move(kept);
}

}  // namespace mytorch::graph
