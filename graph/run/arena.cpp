#include "graph/run/arena.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/runtime/device_registry.h"
#include "dispatcher/table/fields.h"
#include "graph/ir/uses.h"
#include "graph/run/in_place.h"
#include "graph/steps/memory.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::graph {
namespace {

// Returns, for each memory, the steps at which it is in use first and last. A node counts as the
// step that follows. Memory that is not used has a last step before the first.
std::vector<Lifetime> lifetimes_of(const PlanParts& parts) {
  std::vector<Lifetime> found;
  for (const PlanMemory& memory : parts.memories) found.push_back({memory.bytes, SIZE_MAX, 0});
  const TensorPlaces places = places_of(parts);
  const auto use = [&](size_t memory, size_t at) {
    found[memory].first = std::min(found[memory].first, at);
    found[memory].last = std::max(found[memory].last, at);
  };
  for (size_t i = 0; i < parts.steps.size(); ++i) {
    const auto tensor = [&](const mt_tensor*& t) {
      if (const auto at = places.find(t); at != places.end()) {
        use(static_cast<size_t>(at->second.memory), i);
      }
    };
    const OpInfo& op = *parts.steps[i].entry->info;
    for_each_input(op, parts.steps[i].args.get(),
                   [&](const mt_tensor*& t, const ArgInfo&) { tensor(t); });
    for_each_output(op, parts.steps[i].args.get(),
                    [&](const mt_tensor*& t, const OutputInfo&) { tensor(t); });
  }
  for (const Interpreted& each : parts.nodes) {
    const auto value = [&](ValueId id) {
      use(static_cast<size_t>(parts.buffers[parts.graph.values[id].buffer]), each.before);
    };
    parts.graph.nodes[each.node].for_each_operand(value);
    parts.graph.nodes[each.node].for_each_result(value);
  }
  return found;
}

}  // namespace

void plan_arena(PlanParts* parts) {
  const Recorded& recorded = parts->recorded;
  parts->recorded_peak_bytes =
      peak_bytes(recorded.original != nullptr ? recorded.original->graph : recorded.graph);
  std::vector<Device> devices;
  for (PlanMemory& memory : parts->memories) {
    // The storages of the first run go with its tensors; constants are counted.
    if (!memory.counted) release_memory(memory);
    if (memory.kind != PlanMemory::kArena) continue;
    if (std::find(devices.begin(), devices.end(), memory.device) == devices.end()) {
      devices.push_back(memory.device);
    }
  }
  std::vector<Lifetime> used = lifetimes_of(*parts);
  const std::vector<size_t> root = lay_in_place(*parts, &used);
  for (size_t m = 0; m < parts->memories.size(); ++m) {
    PlanMemory& memory = parts->memories[m];
    if (memory.kind != PlanMemory::kKept || used[m].first > used[m].last) continue;
    parts->kept_bytes += memory.bytes;
    const int slot = checked_device_slot(memory.device);
    move(memory, allocate_storage(memory.device, slot, memory.bytes), true);
  }
  for (const Device device : devices) {
    std::vector<Lifetime> lifetimes;
    std::vector<size_t> planned;
    for (size_t m = 0; m < parts->memories.size(); ++m) {
      PlanMemory& memory = parts->memories[m];
      if (memory.kind != PlanMemory::kArena || memory.device != device) continue;
      if (used[m].first > used[m].last) continue;  // its value stays in a fused kernel
      parts->intermediate_bytes += memory.bytes;
      if (root[m] != m) continue;
      lifetimes.push_back(used[m]);
      planned.push_back(m);
    }
    if (planned.empty()) continue;  // all values stay in fused kernels
    const Placement placement = place_lifetimes(lifetimes);
    parts->arena_bytes += placement.bytes;
    Storage* storage = allocate_storage(device, checked_device_slot(device),
                                        std::max<uint64_t>(placement.bytes, 1));
    bool first = true;  // which takes over the reference
    const auto settle = [&](size_t m, int64_t begin) {
      if (!std::exchange(first, false)) detail::retain(storage);
      move(parts->memories[m], storage, true, begin);
    };
    for (size_t i = 0; i < planned.size(); ++i) {
      settle(planned[i], static_cast<int64_t>(placement.offsets[i]));
    }
    for (size_t m = 0; m < root.size(); ++m) {
      const bool in_place = root[m] != m && parts->memories[m].device == device;
      if (in_place) settle(m, parts->memories[root[m]].begin);
    }
  }
}

}  // namespace mytorch::graph
