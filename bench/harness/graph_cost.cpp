#include "bench/harness/graph_cost.h"

#include <algorithm>
#include <utility>

#include "bench/harness/cost.h"
#include "conformance/custom.h"
#include "core/runtime/device_registry.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::bench {
namespace {

using graph::Arg;
using graph::GraphNode;
using graph::kNoValue;
using graph::ValueId;
using graph::ValueInfo;

// The tensors of one node, which stand for those of a run: their memory is never touched.
class StandIns {
 public:
  explicit StandIns(const graph::Graph& graph) : graph_(graph) {}

  Tensor tensor(ValueId id) {
    if (id == kNoValue) return {};
    const ValueInfo& info = graph_.values[static_cast<size_t>(id)];
    Tensor& memory = memories_[info.buffer];
    if (!memory.defined()) {
      const auto bytes = static_cast<int64_t>(std::max<uint64_t>(graph_.buffer_of(id).bytes, 1));
      memory = Tensor::adopt(new_tensor(&bytes, 1, kUInt8, kCPU, kCpuSlot));
    }
    detail::retain(memory.impl()->storage);
    return Tensor::adopt(new_tensor_over(memory.impl()->storage, as_list(info.sizes),
                                         as_list(info.strides), info.dtype, info.offset));
  }
  Value value(const Arg& arg) {
    if (arg.kind == Arg::kConstant) return arg.constant;
    if (arg.kind == Arg::kTensor)
      return arg.values[0] == kNoValue ? Value() : tensor(arg.values[0]);
    std::vector<Tensor> list;
    for (const ValueId id : arg.values) list.push_back(tensor(id));
    return list;
  }

 private:
  const graph::Graph& graph_;
  std::map<int32_t, Tensor> memories_;
};

}  // namespace

GraphCosts::GraphCosts(const graph::Graph& graph)
    : graph_(graph), catalog_(conformance::all_records(conformance::share_folder())) {
  for (const auto& record : catalog_) records_[record.name] = &record;
}

NodeCost GraphCosts::of(const GraphNode& node) const {
  const auto found = records_.find(node.op().name);
  if (node.op().meaning == Meaning::kView) return {};
  if (found == records_.end()) return {.known = false};
  const conformance::OpRecord& record = *found->second;
  StandIns tensors(graph_);
  std::vector<Value> args, results;
  const auto outs = static_cast<size_t>(node.form == kOut ? node.outs() : 0);
  for (size_t i = 0; i < node.args.size(); ++i) {
    (i < outs ? results : args).push_back(tensors.value(node.args[i]));
  }
  for (const Arg& result : node.results) results.push_back(tensors.value(result));
  if (node.form == kInplace) results.push_back(args.at(0));
  NodeCost cost;
  cost.flops = call_flops(record, node.op(), args, results);
  cost.bytes = call_bytes(record, args, results, node.form == kInplace).total();
  cost.recorded = record.cost.contains("flops");
  cost.known = cost.recorded || node.op().num_programs > 0 || cost.bytes == 0;
  return cost;
}

}  // namespace mytorch::bench
