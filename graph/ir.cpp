#include "graph/ir.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace mytorch::graph {

bool Node::random() const {
  for (int i = 0; i < op().num_args; ++i) {
    if (op().args[i].type == ArgType::kGenerator) return true;
  }
  return false;
}

std::string Node::name() const {
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

bool Node::overwrites(size_t arg) const {
  if (form == kOut && static_cast<int>(arg) < outs()) return true;
  return form == kFunction && arg == 0 && op().num_args > 0 && overwrites_argument(op());
}

}  // namespace mytorch::graph
