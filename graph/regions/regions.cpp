#include "graph/regions/regions.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/state.h"
#include "dispatcher/table/fields.h"
#include "graph/ir/convex.h"
#include "graph/ir/switches.h"
#include "graph/regions/region.h"
#include "graph/regions/region_op.h"
#include "mytorch/check.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::graph {
namespace {

// Returns the backends of a device type that take regions, in the order in which they are asked:
// the pinned one, then by priority. The reference is asked only if pinned.
std::vector<const Backend*> compilers(int slot, CompileMode mode) {
  const Backend* pinned = pins[slot].load(std::memory_order_acquire);
  std::vector<const Backend*> found;
  for (const Backend* each : backends()) {
    const mt_region_ops* ops = each->abi.regions;
    if (each->device_slot != slot || ops == nullptr || ops->claim == nullptr ||
        ops->compile == nullptr) {
      continue;
    }
    if ((each->abi.flags & MT_BACKEND_REFERENCE) != 0 && each != pinned) continue;
    if (mode == CompileMode::kExact && (ops->flags & MT_REGIONS_EXACT) == 0) continue;
    found.push_back(each);
  }
  std::stable_sort(found.begin(), found.end(), [&](const Backend* a, const Backend* b) {
    if ((a == pinned) != (b == pinned)) return a == pinned;
    return a->abi.compile_priority > b->abi.compile_priority;
  });
  return found;
}

// Returns the backend to which the user pinned an operator, or null.
const Backend* pinned_to(const OpEntry& entry, int slot) {
  const OpState* state = entry.state.load(std::memory_order_acquire);
  return state != nullptr ? pinned_backend(*state, slot) : pins[slot].load();
}

class RegionPlanner {
 public:
  RegionPlanner(PlanParts* parts, const std::vector<NodeRun>& ran,
                const std::vector<const void*>& constants, const std::function<void(ValueId)>& own)
      : parts_(*parts),
        ran_(ran),
        constants_(constants),
        own_(own),
        flow_(parts->graph, memory_numbers(*parts), ordered(*parts, ran)),
        convex_(flow_.before),
        is_claimed_(parts->graph.nodes.size()) {}

  void run() {
    if (is_disabled(kRegions)) return;
    for (const auto& [device, nodes] : offered()) {
      for (const Backend* backend : compilers(checked_device_slot(device), parts_.mode)) {
        ask(*backend, nodes);
      }
    }
    if (!claimed_.empty()) emit();
  }

 private:
  struct ClaimedRegion {
    std::vector<int32_t> nodes;
    std::unique_ptr<GraphRegion> region;
    std::shared_ptr<const RegionOp> op;
  };

  // Equal numbers for buffers that lie in one memory, as arguments may.
  static std::vector<int32_t> memory_numbers(const PlanParts& parts) {
    std::vector<int32_t> numbers(parts.graph.buffers.size());
    absl::flat_hash_map<int32_t, int32_t> known;
    int32_t next = 0;
    for (size_t b = 0; b < numbers.size(); ++b) {
      if (parts.buffers[b] < 0) {
        numbers[b] = next++;
        continue;
      }
      const auto [at, added] = known.try_emplace(parts.buffers[b], next);
      if (added) ++next;
      numbers[b] = at->second;
    }
    return numbers;
  }

  // Random calls take the numbers of a generator in order, and what the interpreter runs may have
  // effects that no memory shows.
  static std::vector<bool> ordered(const PlanParts& parts, const std::vector<NodeRun>& ran) {
    std::vector<bool> found;
    for (size_t i = 0; i < ran.size(); ++i) {
      found.push_back(ran[i].interpreted || parts.graph.nodes[i].random());
    }
    return found;
  }

  // Returns the device of a node, or nothing if no region may have the node.
  bool offers(int32_t index, Device* device) const {
    const GraphNode& node = parts_.graph.nodes[index];
    if (!fits_region(flow_, index)) return false;
    bool first = true, same = true;
    const auto look = [&](ValueId id) {
      const Device& each = parts_.graph.buffer_of(id).device;
      if (first) *device = each;
      same = same && *device == each;
      first = false;
    };
    node.for_each_operand(look);
    node.for_each_result(look);
    if (first || !same) return false;
    // A region draws once for each random node.
    size_t draws = 0;
    for (size_t i = ran_[index].begin; i < ran_[index].end; ++i) {
      draws += parts_.steps[i].random.size();
    }
    return draws == (node.random() ? 1u : 0u) && !(node.random() && ran_[index].interpreted);
  }

  // The nodes that regions may have, by device.
  std::vector<std::pair<Device, std::vector<int32_t>>> offered() const {
    std::vector<std::pair<Device, std::vector<int32_t>>> found;
    for (size_t i = 0; i < parts_.graph.nodes.size(); ++i) {
      Device device;
      if (!offers(static_cast<int32_t>(i), &device)) continue;
      auto at = std::find_if(found.begin(), found.end(),
                             [&](const auto& each) { return each.first == device; });
      if (at == found.end()) at = found.insert(at, {device, {}});
      at->second.push_back(static_cast<int32_t>(i));
    }
    return found;
  }

  // Lets a backend claim nodes, and compiles its regions.
  void ask(const Backend& backend, const std::vector<int32_t>& offered) {
    std::vector<int32_t> nodes;
    for (const int32_t node : offered) {
      const Backend* pinned = pinned_to(*parts_.graph.nodes[node].entry, backend.device_slot);
      if ((pinned == nullptr || pinned == &backend) && !is_claimed_[node]) nodes.push_back(node);
    }
    if (nodes.empty()) return;
    const GraphRegion all(flow_, nodes, constants_, parts_.mode);
    std::vector<int32_t> wanted(nodes.size());
    const int status = backend.abi.regions->claim(backend.abi.self, &all.abi(), wanted.data());
    const std::string why = take_host_error();
    if (status != MT_OK) return report(backend, " claims nothing", why);
    ConvexParts joined = convex_;
    std::vector<std::vector<int32_t>> found = split(nodes, wanted, &joined);
    const size_t before = claimed_.size();
    for (std::vector<int32_t>& each : found) compile(backend, std::move(each));
    // What was declined is no region after all.
    for (size_t i = before; i < claimed_.size(); ++i) {
      for (const int32_t node : claimed_[i].nodes) {
        convex_.join(claimed_[i].nodes[0], node);
        is_claimed_[node] = true;
      }
    }
  }

  // Joins the nodes that one backend wants together, as far as no path leaves and returns.
  static std::vector<std::vector<int32_t>> split(const std::vector<int32_t>& nodes,
                                                 const std::vector<int32_t>& wanted,
                                                 ConvexParts* parts) {
    absl::flat_hash_map<int32_t, std::vector<int32_t>> begun;  // the first nodes, by number
    std::vector<int32_t> first;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (wanted[i] <= 0) continue;
      std::vector<int32_t>& same = begun[wanted[i]];
      // The latest first: its values are the ones in use.
      const bool joins = std::any_of(same.rbegin(), same.rend(),
                                     [&](int32_t other) { return parts->join(other, nodes[i]); });
      if (joins) continue;
      same.push_back(nodes[i]);
      first.push_back(nodes[i]);
    }
    std::vector<std::vector<int32_t>> found;
    for (const int32_t node : first) found.push_back(parts->part(node));
    return found;
  }

  void compile(const Backend& backend, std::vector<int32_t> nodes) {
    auto region = std::make_unique<GraphRegion>(flow_, nodes, constants_, parts_.mode);
    const std::string operators = region->operators();
    // A region of views alone computes nothing.
    if (std::all_of(nodes.begin(), nodes.end(), [&](int32_t node) {
          return ran_[node].begin == ran_[node].end && !ran_[node].interpreted;
        })) {
      return report(backend, absl::StrCat(" is not given views alone: ", operators), "");
    }
    std::string reason;
    std::shared_ptr<const RegionOp> op = RegionOp::compile(backend, *region, &reason);
    report(backend, absl::StrCat(op != nullptr ? " runs " : " declined ", operators), reason);
    if (op != nullptr) claimed_.push_back({std::move(nodes), std::move(region), std::move(op)});
  }

  void report(const Backend& backend, const std::string& what, const std::string& why) {
    parts_.region_report.push_back(absl::StrCat(backend.name, what, why.empty() ? "" : ": ", why));
    if (dumps(kRegions)) {
      detail::tell(absl::StrCat("[compile] regions: ", parts_.region_report.back()));
    }
  }

  // Returns the step that runs a region.
  PlanStep step_of(const ClaimedRegion& claimed) {
    const RegionOp& op = *claimed.op;
    const Device device = parts_.graph.buffer_of(first_value(claimed)).device;
    PlanStep step{
        &op.entry(), checked_device_slot(device), {device.type, device.index}, op.new_args(), {},
        {}};
    step.region = claimed.op;
    step.joined = 0;
    for (const int32_t node : claimed.nodes) step.joined += ran_[node].end - ran_[node].begin;
    step.joined = std::max<size_t>(step.joined, 1);
    size_t operand = 0;
    const auto give = [&](ValueId id, bool made, bool written) {
      own_(id);
      field<const mt_tensor*>(step.args.get(), RegionOp::offset_of(operand++)) =
          &parts_.values[id].impl()->abi;
      const int32_t at = parts_.buffers[parts_.graph.values[id].buffer];
      // The memory of a node that was interpreted.
      if (made) parts_.memories[at].kind = PlanMemory::kArena;
      if (!written) return;
      if (std::find(step.written.begin(), step.written.end(), at) == step.written.end()) {
        step.written.push_back(at);
      }
    };
    for (size_t i = 0; i < claimed.region->inputs().size(); ++i) {
      give(claimed.region->inputs()[i], false, claimed.region->writes(i));
    }
    for (const ValueId id : claimed.region->outputs()) give(id, true, true);
    if (op.scratch_bytes() > 0) {
      field<const mt_tensor*>(step.args.get(), RegionOp::offset_of(operand)) =
          scratch(device, op.scratch_bytes());
    }
    for (size_t i = 0; i < claimed.region->generators().size(); ++i) {
      step.random.push_back({op.offset_of_random(i), claimed.region->generators()[i]});
    }
    return step;
  }
  ValueId first_value(const ClaimedRegion& claimed) const {
    ValueId found = kNoValue;
    const auto look = [&](ValueId id) { found = found == kNoValue ? id : found; };
    parts_.graph.nodes[claimed.nodes[0]].for_each_operand(look);
    parts_.graph.nodes[claimed.nodes[0]].for_each_result(look);
    return found;
  }

  // Returns a tensor over memory of the arena.
  const mt_tensor* scratch(const Device& device, uint64_t bytes) {
    PlanMemory& memory = parts_.memories.emplace_back();
    memory.kind = PlanMemory::kArena;
    memory.bytes = bytes;
    memory.device = device;
    const auto size = static_cast<int64_t>(bytes);
    const int64_t stride = 1;
    TensorImpl* impl =
        new_view(parts_.empty.impl(), IntList(&size, 1), IntList(&stride, 1), 0, kUInt8);
    impl->abi.dl.device = {device.type, device.index};
    impl->device_slot = static_cast<uint8_t>(checked_device_slot(device));
    return &memory.headers.emplace_back(Tensor::adopt(impl), 0).first.impl()->abi;
  }

  // Replaces the steps and nodes by those of the new order.
  void emit() {
    absl::flat_hash_map<int32_t, const ClaimedRegion*> region_of;  // by the first node
    for (const ClaimedRegion& each : claimed_) {
      region_of[each.nodes[0]] = &each;
      parts_.keeps_constants = parts_.keeps_constants || each.region->has_constants();
    }
    std::vector<PlanStep> steps;
    std::vector<Interpreted> nodes;
    for (const int32_t node : convex_.order()) {
      if (const auto at = region_of.find(node); at != region_of.end()) {
        steps.push_back(step_of(*at->second));
        continue;
      }
      const NodeRun& ran = ran_[node];
      if (ran.interpreted) nodes.push_back({steps.size(), static_cast<size_t>(node)});
      for (size_t i = ran.begin; i < ran.end; ++i) steps.push_back(std::move(parts_.steps[i]));
    }
    parts_.steps = std::move(steps);
    parts_.nodes = std::move(nodes);
  }

  PlanParts& parts_;
  const std::vector<NodeRun>& ran_;
  const std::vector<const void*>& constants_;
  const std::function<void(ValueId)>& own_;
  const Flow flow_;
  ConvexParts convex_;  // with the regions that were compiled
  std::vector<ClaimedRegion> claimed_;
  std::vector<bool> is_claimed_;  // by node
};

}  // namespace

namespace {

// The numbers of references that a recording holds, with its original, to tensors from outside.
absl::flat_hash_map<const TensorImpl*, uint32_t> references(const Recorded& recorded) {
  absl::flat_hash_map<const TensorImpl*, uint32_t> count;
  for (const Recorded* each = &recorded; each != nullptr; each = each->original) {
    for (const Tensor& tensor : each->outside) ++count[tensor.impl()];
  }
  return count;
}

}  // namespace

std::vector<const void*> constant_memory(const Recorded& recorded) {
  const Graph& graph = recorded.graph;
  std::vector<const void*> found(graph.buffers.size());
  const auto count = references(recorded);
  for (size_t b = 0; b < found.size(); ++b) {
    if (graph.buffers[b].origin != BufferOrigin::kOutside) continue;
    const TensorImpl& impl = *recorded.outside[graph.buffers[b].index].impl();
    if (impl.refs.load() != count.at(&impl) || impl.base != nullptr ||
        impl.storage->refs.load() != 1 || (impl.storage->abi.flags & MT_STORAGE_ESCAPED) != 0) {
      continue;
    }
    found[b] = impl.storage->data;
  }
  const auto changes = [&](ValueId id) {
    if (id != kNoValue) found[graph.values[id].buffer] = nullptr;
  };
  for (const GraphNode& node : graph.nodes) node.for_each_written(changes);
  for (const ValueId id : graph.results) changes(id);
  for (const GradResult& grad : graph.grads) changes(grad.grad);
  return found;
}

void compile_regions(PlanParts* parts, const std::vector<NodeRun>& ran,
                     const std::vector<const void*>& constants,
                     const std::function<void(ValueId)>& own) {
  const std::vector<GraphBuffer>& buffers = parts->graph.buffers;
  const bool any = std::any_of(buffers.begin(), buffers.end(), [&](const GraphBuffer& buffer) {
    return !compilers(checked_device_slot(buffer.device), parts->mode).empty();
  });
  if (any) RegionPlanner(parts, ran, constants, own).run();
}

}  // namespace mytorch::graph
