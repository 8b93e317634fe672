#include "graph/run/plan.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/device_registry.h"
#include "core/runtime/stream_capture.h"
#include "core/types/errors.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/choice/state.h"
#include "dispatcher/table/fields.h"
#include "graph/fusion/fused_op.h"
#include "graph/regions/region_op.h"
#include "graph/run/kept_steps.h"
#include "graph/run/partial.h"
#include "graph/run/plan_device_graph.h"
#include "graph/steps/interpret.h"
#include "graph/steps/plan_parts.h"
#include "mytorch/thread_state.h"

namespace mytorch::graph {

struct ReplayPlan::Impl : PlanParts {
  using PlanParts::PlanParts;

  // A storage is told by its id, because its address may have been another's. The caller keeps it.
  void move_source(int32_t buffer, const std::vector<Tensor>& arguments) {
    const GraphBuffer& of = graph.buffers[buffer];
    Tensor grad;  // others are not copied, which counts references
    if (of.origin != BufferOrigin::kArgument && of.origin != BufferOrigin::kOutside) {
      grad = source(buffer, arguments);
    }
    const Tensor& found = of.origin == BufferOrigin::kArgument  ? arguments[of.index]
                          : of.origin == BufferOrigin::kOutside ? recorded.outside[of.index]
                                                                : grad;
    PlanMemory& memory = memories[buffers[buffer]];
    Storage* storage = found.impl()->storage;
    const int64_t begin = begin_of(buffer, found);
    if (storage->abi.id == memory.storage_id && begin == memory.begin) return;
    move(memory, storage, false, begin);
  }

  // Runs the kernel that ran the call first. Of a call that the operator's preferred kernel
  // declines, eager calls decompose, but an observed one takes the next kernel.
  static bool run_noted(const PlanStep& step, mt_ctx* ctx) {
    OpState* state = step.entry->state.load(std::memory_order_acquire);
    if (step.kernel == nullptr || state == nullptr) return false;
    const int status = run_one(*state, step.slot, *step.kernel, ctx, step.args.get());
    release_scratch(ctx);
    return status == MT_OK;
  }

  void run_step(PlanStep& step) {
    for (const RandomField& random : step.random) {
      field<mt_random>(step.args.get(), random.offset) =
          num_captures() == 0
              ? random.generator.next()
              : captured_draw(random.generator, Device(step.device.type, step.device.index));
    }
    mt_ctx* ctx = context(step.slot, step.device);
    if (step.fused != nullptr) {
      step.fused->run(step.slot, ctx, step.args.get());
    } else if (step.region != nullptr) {
      step.region->run(step.slot, ctx, step.args.get());
    } else if (!run_kernel(*step.entry, step.slot, ctx, step.args.get()) && !run_noted(step, ctx)) {
      fail(ErrorCode::kInternal, "[compile] no kernel takes the call of ", step.entry->info->base,
           "() any more, which one took when the graph was recorded");
    }
    for (const int32_t id : step.written) ++memories[id].storage->abi.version;
  }

  void run_node(const GraphNode& node) {
    const std::vector<Value> results = interpret(node, [&](ValueId id) { return values[id]; });
    for (size_t r = 0; r < results.size(); ++r) {
      const std::vector<Tensor> tensors = tensors_of(results[r]);
      for (size_t k = 0; k < node.results[r].values.size(); ++k) {
        const ValueId id = node.results[r].values[k];
        if (id == kNoValue) continue;
        PlanMemory& memory = memories[buffers[graph.values[id].buffer]];
        Storage* storage = tensors[k].impl()->storage;
        if (storage == memory.storage) continue;  // a view, or an operand
        if (memory.kind == PlanMemory::kUnplanned) {
          detail::retain(storage);
          move(memory, storage, true);
        } else {
          values[id].copy_(tensors[k]);
        }
      }
    }
  }

  Tensor output_tensor(ValueId id) const {
    if (id == kNoValue) return {};
    const PlanMemory& memory = memory_of_value(id);
    return tensor_over(memory.storage, graph.values[id], memory.begin);
  }

  void run_steps(BranchRun* branches = nullptr) {
    size_t step = num_kept;
    size_t node = 0;
    try {
      for (; step <= steps.size(); ++step) {
        for (; node < nodes.size() && nodes[node].before == step; ++node) {
          run_node(graph.nodes[nodes[node].node]);
        }
        if (step == steps.size()) break;
        if (branches != nullptr) branches->before(step);
        run_step(steps[step]);
        if (branches != nullptr) branches->after(step);
      }
    } catch (const Error& error) {
      const std::string changed = partial_text(*this, step, node);
      if (changed.empty() || num_captures() > 0) throw;  // what is captured has not run
      throw Error(error.code(), error.what() + changed);
    }
  }

  // Computes the results that are kept, if what they follow from has changed. A capture by the
  // caller gets these steps in any case: its replays must see the tensors as they are then.
  void run_kept_steps(const std::vector<Tensor>& arguments) {
    const bool captured = num_captures() > 0;
    if (num_kept == 0 || (!captured && kept_from.holds(*this))) return;
    // A kernel may fail before all of them are computed; a captured one runs later, at any time.
    kept_from.forget();
    for (const int32_t buffer : kept_sources) move_source(buffer, arguments);
    for (size_t i = 0; i < num_kept; ++i) run_step(steps[i]);
    if (!captured) kept_from.note(*this);
  }

  // Puts results where the caller wants them.
  void take_places(const std::vector<Storage*>& into) {
    for (size_t i = 0; i < into.size(); ++i) {
      PlanMemory& memory = memories[buffers[graph.values[graph.results[i]].buffer]];
      if (into[i] == nullptr || memory.kind != PlanMemory::kResult || memory.storage != nullptr ||
          memory.bytes != into[i]->bytes) {
        continue;
      }
      detail::retain(into[i]);
      move(memory, into[i], true);
    }
  }

  std::vector<Tensor> run(const std::vector<Tensor>& arguments, const std::vector<Storage*>& into) {
    run_kept_steps(arguments);
    std::vector<Tensor> results;
    // The first run without the graph compiles kernels and fills caches.
    if (runs++ > 0 && device_graph != nullptr &&
        device_graph->run(
            arguments, [this](BranchRun* branches) { run_steps(branches); }, &results)) {
      return results;
    }
    for (const int32_t buffer : sources) move_source(buffer, arguments);
    take_places(into);
    for (const int32_t id : allocated) {
      PlanMemory& memory = memories[id];
      if (memory.kind == PlanMemory::kUnplanned || memory.storage != nullptr) continue;
      const int slot = checked_device_slot(memory.device);
      move(memory, allocate_storage(memory.device, slot, memory.bytes), true);
    }
    run_steps();
    results.reserve(graph.results.size());
    for (const ValueId id : graph.results) results.push_back(output_tensor(id));
    std::vector<Tensor> grads;
    grads.reserve(graph.grads.size());
    for (const GradResult& grad : graph.grads) grads.push_back(output_tensor(grad.grad));
    // The caller alone holds the results, so that operators may write them in place.
    for (const int32_t id : allocated) release_memory(memories[id]);
    set_grads(grads, arguments);
    return results;
  }

  KeptFrom kept_from;
  std::unique_ptr<PlanDeviceGraph> device_graph;
  int64_t runs = 0;
};

ReplayPlan::ReplayPlan(const Recorded& recorded, CompileMode mode,
                       const std::vector<Tensor>& arguments, std::vector<Tensor>* results)
    : impl_(std::make_unique<Impl>(recorded, mode)) {
  *results = run_first(impl_.get(), arguments);
  if (PlanDeviceGraph::suits(*impl_))
    impl_->device_graph = std::make_unique<PlanDeviceGraph>(impl_.get());
}
ReplayPlan::~ReplayPlan() = default;

std::vector<Tensor> ReplayPlan::run(const std::vector<Tensor>& arguments,
                                    const std::vector<Storage*>& into) {
  return impl_->run(arguments, into);
}
size_t ReplayPlan::kernel_calls() const { return impl_->steps.size(); }
size_t ReplayPlan::fused() const {
  size_t fused = 0;
  for (const PlanStep& step : impl_->steps) fused += step.joined - 1;
  return fused;
}
bool ReplayPlan::keeps_constants() const { return impl_->keeps_constants; }
size_t ReplayPlan::regions() const {
  return static_cast<size_t>(
      std::count_if(impl_->steps.begin(), impl_->steps.end(),
                    [](const PlanStep& step) { return step.region != nullptr; }));
}
const std::vector<std::string>& ReplayPlan::region_report() const { return impl_->region_report; }
const std::vector<std::string>& ReplayPlan::fusion_report() const { return impl_->fusion_report; }
bool ReplayPlan::has_device_graph() const {
  return impl_->device_graph != nullptr && !impl_->device_graph->is_given_up();
}
int ReplayPlan::streams() const {
  return impl_->device_graph != nullptr ? impl_->device_graph->streams() : 1;
}
std::vector<std::string> ReplayPlan::interpreted() const {
  std::vector<std::string> names;
  for (const Interpreted& each : impl_->nodes) {
    names.push_back(impl_->graph.nodes[each.node].name());
  }
  return names;
}
size_t ReplayPlan::kept() const { return impl_->num_kept; }
uint64_t ReplayPlan::kept_bytes() const { return impl_->kept_bytes; }
uint64_t ReplayPlan::arena_bytes() const { return impl_->arena_bytes; }
uint64_t ReplayPlan::intermediate_bytes() const { return impl_->intermediate_bytes; }
uint64_t ReplayPlan::recorded_peak_bytes() const { return impl_->recorded_peak_bytes; }

}  // namespace mytorch::graph
