#include "graph/run/plan_device_graph.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/table/fields.h"
#include "graph/ir/switches.h"
#include "graph/regions/region_op.h"
#include "graph/run/partial.h"
#include "mytorch/ops/empty_like.h"
#include "mytorch/tensor_impl.h"
#include "mytorch/thread_state.h"

namespace mytorch::graph {
namespace {

// A replay saves about half a microsecond a step, and copies about a megabyte in a microsecond.
constexpr double kBytesPerStep = 0.5e6;
constexpr size_t kFewSteps = 4;
// Streams add scratch memory for each, and time to measure whether they gain.
constexpr int kMaxStreams = 4;
constexpr size_t kMeasured = 10;     // replays, half of them with branches
constexpr double kLeastGain = 0.02;  // that makes up for the memory

bool has_graphs(const mt_device_ops* ops) {
  return ops != nullptr && ops->begin_graph != nullptr && ops->end_graph != nullptr &&
         ops->launch_graph != nullptr && ops->destroy_graph != nullptr;
}

// Returns the number of elements from the first to the last, both included.
int64_t extent(const ValueInfo& info) {
  int64_t last = 0;
  for (size_t d = 0; d < info.sizes.size(); ++d) {
    if (info.sizes[d] == 0) return 0;
    last += (info.sizes[d] - 1) * info.strides[d];
  }
  return last + 1;
}

Device device_of(const PlanStep& step) { return Device(step.device.type, step.device.index); }

// Returns whether all values in a memory lie within one of them.
bool covers_memory(const PlanParts& parts, const ValueInfo& whole, int32_t memory) {
  const int64_t begin = whole.offset * element_size(whole.dtype);
  const int64_t end = begin + extent(whole) * element_size(whole.dtype);
  return std::all_of(
      parts.graph.values.begin(), parts.graph.values.end(), [&](const ValueInfo& info) {
        if (info.buffer < 0 || parts.buffers[info.buffer] != memory) return true;
        const int64_t size = element_size(info.dtype);
        return info.offset * size >= begin && (info.offset + extent(info)) * size <= end;
      });
}

bool repeats(const ValueInfo& info) {
  for (size_t d = 0; d < info.sizes.size(); ++d) {
    if (info.strides[d] == 0 && info.sizes[d] > 1) return true;
  }
  return false;
}

}  // namespace

bool PlanDeviceGraph::suits(const PlanParts& parts) {
  if (!parts.nodes.empty() || parts.steps.size() < kFewSteps) return false;
  const PlanStep& first = parts.steps[0];
  if (!has_graphs(device_type(first.slot).ops)) return false;
  absl::flat_hash_map<const mt_tensor*, size_t> memory_of;
  for (size_t m = 0; m < parts.memories.size(); ++m) {
    for (const auto& [tensor, offset] : parts.memories[m].headers) {
      memory_of[&tensor.impl()->abi] = m;
    }
  }
  absl::flat_hash_set<int32_t> written;
  for (const PlanStep& step : parts.steps) {
    if (step.region != nullptr && !step.region->is_capturable()) return false;
    if (step.slot != first.slot || step.device.index != first.device.index) return false;
    written.insert(step.written.begin(), step.written.end());
    bool fits = true;
    for_each_input(*step.entry->info, step.args.get(), [&](const mt_tensor*& t, const ArgInfo&) {
      if ((t->flags & MT_TENSOR_HOST) == 0 || t->storage == nullptr) return;
      // The device graph would keep the number that is there at capture.
      const auto at = memory_of.find(t);
      fits =
          fits && at != memory_of.end() && parts.memories[at->second].kind == PlanMemory::kConstant;
    });
    if (!fits) return false;
  }
  // An argument gets memory of its own, so nothing else may lie in its memory.
  absl::flat_hash_map<int32_t, int> sources;
  for (const int32_t buffer : parts.sources) ++sources[parts.buffers[buffer]];
  const Device device = device_of(first);
  uint64_t copied = 0;
  absl::flat_hash_set<int32_t> seen;
  for (const ValueId id : parts.graph.arguments) {
    const ValueInfo& info = parts.graph.values[id];
    const int32_t memory = parts.buffers[info.buffer];
    // Nor does it hold what lies beside the argument.
    if (!seen.insert(memory).second || sources[memory] > 1 || repeats(info) ||
        !covers_memory(parts, info, memory) || written.contains(memory) ||
        parts.memories[memory].device != device) {
      return false;
    }
    copied += static_cast<uint64_t>(extent(info) * element_size(info.dtype));
  }
  for (const ValueId id : parts.graph.results) {
    if (id != kNoValue) copied += parts.memory_of_value(id).bytes;
  }
  return static_cast<double>(copied) <= kBytesPerStep * static_cast<double>(parts.steps.size());
}

PlanDeviceGraph::PlanDeviceGraph(PlanParts* parts)
    : parts_(*parts), device_(device_of(parts->steps[0])), graph_(device_) {
  absl::flat_hash_map<int32_t, uint64_t> writes;
  for (const PlanStep& step : parts_.steps) {
    for (const int32_t id : step.written) ++writes[id];
  }
  writes_.assign(writes.begin(), writes.end());
  for (const int32_t buffer : parts_.sources) {
    if (parts_.graph.buffers[buffer].origin != BufferOrigin::kArgument) outside_.push_back(buffer);
  }
  for (const ValueId id : parts_.graph.results) {
    if (id == kNoValue) continue;
    const int32_t memory = parts_.buffers[parts_.graph.values[id].buffer];
    if (parts_.memories[memory].kind == PlanMemory::kResult) copied_out_.insert(memory);
  }
}

// Returns whether nobody but the leaves refers to the grads of the call before.
bool PlanDeviceGraph::grads_are_free(const std::vector<Tensor>& arguments) const {
  for (const GradResult& grad : parts_.graph.grads) {
    if (grad.grad == kNoValue) continue;
    const int32_t memory = parts_.buffers[parts_.graph.values[grad.grad].buffer];
    const auto kept = kept_.find(memory);
    if (kept == kept_.end() || copied_out_.contains(memory)) continue;
    const Storage* storage = kept->second.impl()->storage;
    const uint32_t refs = storage->refs.load();
    if (refs == 1) continue;
    const Tensor& held = parts_.recorded.leaf(grad.leaf, arguments).grad();
    // One reference is of this object, one of the grad, and the grad has one of the leaf and one
    // here.
    if (refs > 2 || !held.defined() || held.impl()->storage != storage ||
        held.impl()->refs.load() > 2) {
      return false;
    }
  }
  return true;
}

bool PlanDeviceGraph::outside_has_moved(const std::vector<Tensor>& arguments) const {
  for (size_t i = 0; i < outside_.size(); ++i) {
    if (parts_.source(outside_[i], arguments).impl()->storage->abi.id != outside_ids_[i]) {
      return true;
    }
  }
  return false;
}

// A device graph holds the seeds of its random numbers.
bool PlanDeviceGraph::seeds_have_changed() const {
  return std::any_of(seeds_.begin(), seeds_.end(),
                     [](const auto& each) { return each.first.seed() != each.second; });
}

void PlanDeviceGraph::capture(const std::vector<Tensor>& arguments, const RunSteps& run_steps) {
  ++captures_;
  is_captured_ = false;
  outside_ids_.clear();
  for (const int32_t buffer : outside_) {
    const Tensor found = parts_.source(buffer, arguments);
    Storage* storage = found.impl()->storage;
    outside_ids_.push_back(storage->abi.id);
    move(parts_.memories[parts_.buffers[buffer]], storage, false, parts_.begin_of(buffer, found));
  }
  inputs_.clear();
  for (const ValueId id : parts_.graph.arguments) {
    const ValueInfo& info = parts_.graph.values[id];
    const int64_t size = element_size(info.dtype);
    Storage* storage =
        allocate_storage(device_, checked_device_slot(device_),
                         static_cast<uint64_t>(std::max<int64_t>(extent(info), 1) * size));
    ValueInfo own = info;
    own.offset = 0;
    inputs_.push_back(tensor_over(storage, own, 0));
    detail::release_last(storage);  // the tensor has its own reference
    move(parts_.memories[parts_.buffers[info.buffer]], storage, false, -info.offset * size);
  }
  seeds_.clear();
  for (const PlanStep& step : parts_.steps) {
    for (const RandomField& random : step.random) {
      const bool known = std::any_of(seeds_.begin(), seeds_.end(), [&](const auto& each) {
        return each.first.shares_state(random.generator);
      });
      if (!known) seeds_.emplace_back(random.generator, random.generator.seed());
    }
  }
  kept_.clear();
  for (const int32_t id : parts_.allocated) {
    PlanMemory& memory = parts_.memories[id];
    Storage* storage = allocate_storage(device_, checked_device_slot(device_), memory.bytes);
    const ValueInfo bytes{-1, kUInt8, {static_cast<int64_t>(memory.bytes)}, {1}, 0};
    kept_.emplace(id, tensor_over(storage, bytes, 0));
    move(memory, storage, true);
  }
  graph_.capture([&] { run_steps(nullptr); });
  branched_ = false;
  capture_branches(run_steps);
  release_allocated();
  is_captured_ = true;
}

// A run without the graph sets these memories anew.
void PlanDeviceGraph::release_allocated() {
  for (const int32_t id : parts_.allocated) {
    if (parts_.memories[id].storage != nullptr) release_memory(parts_.memories[id]);
  }
}

void PlanDeviceGraph::capture_branches(const RunSteps& run_steps) {
  beside_.reset();
  measured_.clear();
  if (!TimedEvent::known_by(device_) || is_disabled(kBranches)) return;
  branches_ = branches_of(parts_, parts_.num_kept, kMaxStreams);
  if (branches_.streams < 2) return;
  beside_.emplace(device_);
  try {
    beside_->capture([&] {
      BranchRun run(parts_, branches_);
      run_steps(&run);
      run.join();
    });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    beside_.reset();  // no scratch memory for further streams: the graph without branches is there
  }
}

void PlanDeviceGraph::replay() {
  if (!beside_.has_value() || is_capturing(device_)) return graph_.replay();
  TimedEvent begin(device_);
  (measured_.size() % 2 == 0 ? *beside_ : graph_).replay();
  measured_.emplace_back(std::move(begin), TimedEvent(device_));
  if (measured_.size() == kMeasured) choose();
}

void PlanDeviceGraph::choose() {
  double least[2] = {HUGE_VAL, HUGE_VAL};  // with branches, without
  for (size_t i = 0; i < measured_.size(); ++i) {
    const double seconds = measured_[i].second.seconds_since(measured_[i].first);
    least[i % 2] = std::min(least[i % 2], seconds);
  }
  branched_ = least[0] < (1 - kLeastGain) * least[1];
  if (branched_) graph_ = std::move(*beside_);
  beside_.reset();
  measured_.clear();
}

Tensor PlanDeviceGraph::output_tensor(ValueId id, const std::vector<Tensor>& arguments,
                                      const absl::flat_hash_map<int32_t, Tensor>& fresh) const {
  if (id == kNoValue) return {};
  const ValueInfo& info = parts_.graph.values[id];
  const int32_t memory = parts_.buffers[info.buffer];
  if (const auto at = fresh.find(memory); at != fresh.end()) {
    return tensor_over(at->second.impl()->storage, info, 0);
  }
  if (const auto at = kept_.find(memory); at != kept_.end()) {
    return tensor_over(at->second.impl()->storage, info, 0);
  }
  // A view of an argument or of a tensor from outside.
  const auto source = std::find_if(parts_.sources.begin(), parts_.sources.end(),
                                   [&](int32_t each) { return parts_.buffers[each] == memory; });
  const Tensor found = parts_.source(*source, arguments);
  return tensor_over(found.impl()->storage, info, parts_.begin_of(*source, found));
}

bool PlanDeviceGraph::run(const std::vector<Tensor>& arguments, const RunSteps& run_steps,
                          std::vector<Tensor>* results) {
  if (is_given_up() || !grads_are_free(arguments)) return false;
  const LayerMask masked(~0u);
  if (!is_captured_ || outside_has_moved(arguments) || seeds_have_changed()) {
    try {
      capture(arguments, run_steps);
    } catch (const Error& error) {
      release_allocated();
      // A kernel waits for the device; or there is no memory for arguments and results besides.
      if (error.code() != ErrorCode::kUnsupported && error.code() != ErrorCode::kOutOfMemory) throw;
      captures_ = kMaxCaptures + 1;
      inputs_.clear();
      kept_.clear();
      return false;
    }
  }
  // Before anything is written, as there may be no memory.
  absl::flat_hash_map<int32_t, Tensor> fresh;
  for (const int32_t id : copied_out_) fresh.emplace(id, empty_like(kept_.at(id)));
  for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].copy_(arguments[i]);
  for (const auto& [id, count] : writes_) {
    if (const Storage* storage = parts_.memories[id].storage; storage != nullptr) {
      const_cast<Storage*>(storage)->abi.version += count;
    }
  }
  try {
    replay();
    for (const auto& [id, tensor] : fresh) tensor.copy_(kept_.at(id));
  } catch (const Error& error) {
    const std::string changed = partial_launch_text(parts_);
    if (changed.empty()) throw;
    throw Error(error.code(), error.what() + changed);
  }
  for (const ValueId id : parts_.graph.results)
    results->push_back(output_tensor(id, arguments, fresh));
  std::vector<Tensor> grads;
  for (const GradResult& grad : parts_.graph.grads) {
    grads.push_back(output_tensor(grad.grad, arguments, fresh));
  }
  parts_.set_grads(grads, arguments);
  return true;
}

}  // namespace mytorch::graph
