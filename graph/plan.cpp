#include "graph/plan.h"

#include <utility>

#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/table/fields.h"
#include "graph/interpret.h"
#include "graph/plan_parts.h"
#include "mytorch/thread_state.h"

namespace mytorch::graph {

struct Plan::Impl : PlanParts {
  using PlanParts::PlanParts;

  // A storage is told by its id, because its address may have been another's. The caller keeps it.
  void move_source(int32_t buffer, const std::vector<Tensor>& arguments) {
    const Tensor found = source(buffer, arguments);
    Memory& memory = memories[buffers[buffer]];
    Storage* storage = found.impl()->storage;
    const int64_t begin = begin_of(buffer, found);
    if (storage->abi.id == memory.storage_id && begin == memory.begin) return;
    move(memory, storage, false, begin);
  }

  void run_step(Step& step) {
    for (const Random& random : step.random) {
      field<mt_random>(step.args.get(), random.offset) = random.generator.next();
    }
    mt_ctx* ctx = context(step.slot, step.device);
    if (!run_kernel(*step.entry, step.slot, ctx, step.args.get())) {
      fail(ErrorCode::kInternal, "[compile] no kernel takes the call of ", step.entry->info->base,
           "() any more, which one took when the graph was recorded");
    }
    for (const int32_t id : step.written) ++memories[id].storage->abi.version;
  }

  void run_node(const Node& node) {
    const std::vector<Value> results = interpret(node, [&](ValueId id) { return values[id]; });
    for (size_t r = 0; r < results.size(); ++r) {
      const std::vector<Tensor> tensors = tensors_of(results[r]);
      for (size_t k = 0; k < node.results[r].values.size(); ++k) {
        const ValueId id = node.results[r].values[k];
        if (id == kNoValue) continue;
        Memory& memory = memories[buffers[graph.values[id].buffer]];
        Storage* storage = tensors[k].impl()->storage;
        if (storage == memory.storage) continue;  // a view, or an operand
        if (memory.kind == Memory::kLoose) {
          detail::retain(storage);
          move(memory, storage, true);
        } else {
          values[id].copy_(tensors[k]);
        }
      }
    }
  }

  Tensor leaving(ValueId id) const {
    if (id == kNoValue) return {};
    const Memory& memory = memory_of_value(id);
    return tensor_over(memory.storage, graph.values[id], memory.begin);
  }

  std::vector<Tensor> run(const std::vector<Tensor>& arguments) {
    for (const int32_t buffer : sources) move_source(buffer, arguments);
    for (const int32_t id : made) {
      Memory& memory = memories[id];
      if (memory.kind == Memory::kLoose) continue;
      const int slot = checked_device_slot(memory.device);
      move(memory, allocate_storage(memory.device, slot, memory.bytes), true);
    }
    auto next = nodes.begin();
    for (size_t i = 0; i <= steps.size(); ++i) {
      for (; next != nodes.end() && next->before == i; ++next) run_node(graph.nodes[next->node]);
      if (i < steps.size()) run_step(steps[i]);
    }
    std::vector<Tensor> results;
    results.reserve(graph.results.size());
    for (const ValueId id : graph.results) results.push_back(leaving(id));
    std::vector<Tensor> grads;
    grads.reserve(graph.grads.size());
    for (const GradResult& grad : graph.grads) grads.push_back(leaving(grad.grad));
    // The caller alone holds the results, so that operators may write them in place.
    for (const int32_t id : made) let_go(memories[id]);
    set_grads(grads, arguments);
    return results;
  }
};

Plan::Plan(const Recorded& recorded, const std::vector<Tensor>& arguments,
           std::vector<Tensor>* results)
    : impl_(std::make_unique<Impl>(recorded)) {
  *results = run_first(impl_.get(), arguments);
}
Plan::~Plan() = default;

std::vector<Tensor> Plan::run(const std::vector<Tensor>& arguments) {
  return impl_->run(arguments);
}
size_t Plan::kernel_calls() const { return impl_->steps.size(); }
size_t Plan::interpreted() const { return impl_->nodes.size(); }
uint64_t Plan::arena_bytes() const { return impl_->arena_bytes; }
uint64_t Plan::intermediate_bytes() const { return impl_->intermediate_bytes; }

}  // namespace mytorch::graph
