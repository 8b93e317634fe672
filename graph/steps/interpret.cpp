#include "graph/steps/interpret.h"

#include <utility>

#include "core/types/errors.h"
#include "dispatcher/custom/custom.h"
#include "mytorch/grad_mode.h"

namespace mytorch::graph {

std::vector<Value> interpret(const GraphNode& node, const std::function<Tensor(ValueId)>& tensor_of,
                             uint32_t masked) {
  const OpInfo& op = node.op();
  std::vector<Value> args;
  args.reserve(node.args.size());
  for (const Arg& arg : node.args) {
    if (arg.kind == Arg::kConstant) {
      args.push_back(arg.constant);
    } else if (arg.kind == Arg::kTensor) {
      args.emplace_back(tensor_of(arg.values[0]));
    } else {
      std::vector<Tensor> list;
      for (const ValueId id : arg.values) list.push_back(id == kNoValue ? Tensor() : tensor_of(id));
      args.emplace_back(std::move(list));
    }
  }
  const LayerMask mask(masked);
  const bool grad_mode = thread_state.grad_mode;
  struct Restore {
    bool grad_mode;
    ~Restore() { thread_state.grad_mode = grad_mode; }
  } restore{grad_mode};
  thread_state.grad_mode = node.grad_mode;
  std::vector<Value> results;
  if (op.custom != nullptr) {
    results = run_custom(*op.custom, args);
  } else if (node.form == kInplace) {
    op.boxed_inplace(args.data(), &results);
    results.clear();
  } else if (node.form == kOut) {
    op.boxed_out(args.data(), &results);
    results.clear();
  } else if (op.derived) {
    bool wanted[8];
    for (int i = 0; i < 8; ++i) wanted[i] = (node.wanted >> i & 1) != 0;
    op.boxed_wanted(wanted, args.data(), &results);
  } else {
    op.boxed(args.data(), &results);
  }
  if (node.results.empty()) results.clear();
  if (results.size() != node.results.size()) {
    fail(ErrorCode::kInternal, "[compile] ", node.name(), " gave ", results.size(),
         " results instead of ", node.results.size());
  }
  return results;
}

std::vector<Tensor> tensors_of(const Value& result) {
  if (const auto* list = std::get_if<std::vector<Tensor>>(&result.variant())) return *list;
  if (const auto* tensor = std::get_if<Tensor>(&result.variant())) return {*tensor};
  return {Tensor()};
}

}  // namespace mytorch::graph
