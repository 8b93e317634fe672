#include "graph/run/kept_steps.h"

#include <algorithm>
#include <utility>

#include "dispatcher/table/fields.h"
#include "graph/ir/switches.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::graph {
namespace {

// Who uses a memory, among the steps and nodes of a plan.
struct Uses {
  std::vector<size_t> writers, readers;  // steps
  size_t first_node = SIZE_MAX;          // the step after the first node that reads it
  bool other = false;                    // a node writes it, or it must not be relied on
};

// Returns the memories that a step reads.
std::vector<int32_t> read_by(const PlanStep& step, const TensorPlaces& places) {
  std::vector<int32_t> found;
  for_each_input(*step.entry->info, step.args.get(), [&](const mt_tensor*& t, const ArgInfo&) {
    if (const auto at = places.find(t); at != places.end()) found.push_back(at->second.memory);
  });
  return found;
}

// Returns whether writes to a tensor are counted.
bool counts_writes(const Tensor& tensor) {
  const TensorImpl& impl = *tensor.impl();
  return !impl.inference && (impl.storage->abi.flags & MT_STORAGE_ESCAPED) == 0;
}

class Marking {
 public:
  explicit Marking(PlanParts* parts)
      : parts_(*parts), places_(places_of(*parts)), uses_(parts->memories.size()) {
    note_sources();
    note_uses();
  }

  void mark() {
    for (size_t i = 0; i < parts_.steps.size(); ++i) parts_.steps[i].kept = may_keep(i);
  }

  // Removes marks until a memory is kept as a whole, with all that write it.
  void narrow() {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < parts_.steps.size(); ++i) {
        if (!parts_.steps[i].kept || stays(i)) continue;
        parts_.steps[i].kept = false;
        changed = true;
      }
    }
  }

 private:
  // An argument, or the grad of a leaf, may be another tensor in each call.
  void note_sources() {
    for (const int32_t buffer : parts_.sources) {
      const GraphBuffer& of = parts_.graph.buffers[buffer];
      if (of.origin == BufferOrigin::kOutside && counts_writes(parts_.recorded.outside[of.index])) {
        continue;
      }
      uses_[parts_.buffers[buffer]].other = true;
    }
  }

  void note_uses() {
    for (size_t i = 0; i < parts_.steps.size(); ++i) {
      for (const int32_t memory : parts_.steps[i].written) uses_[memory].writers.push_back(i);
      for (const int32_t memory : read_by(parts_.steps[i], places_)) {
        uses_[memory].readers.push_back(i);
      }
    }
    for (const Interpreted& each : parts_.nodes) {
      const GraphNode& node = parts_.graph.nodes[each.node];
      const auto other = [&](ValueId id) {
        uses_[parts_.buffers[parts_.graph.values[id].buffer]].other = true;
      };
      node.for_each_result(other);
      node.for_each_written(other);
      node.for_each_operand([&](ValueId id) {
        size_t& first = uses_[parts_.buffers[parts_.graph.values[id].buffer]].first_node;
        first = std::min(first, each.before);
      });
    }
  }

  // Regions keep what they need themselves.
  bool may_keep(size_t index) const {
    const PlanStep& step = parts_.steps[index];
    if (!step.random.empty() || step.region != nullptr || step.written.empty()) return false;
    return std::all_of(step.written.begin(), step.written.end(), [&](int32_t memory) {
      return parts_.memories[memory].kind == PlanMemory::kArena && !uses_[memory].other;
    });
  }

  // Returns whether a step may run before all that are not kept: what it reads and writes is kept,
  // or never changes in the plan, and nobody reads what it replaces.
  bool stays(size_t index) const {
    const auto kept = [&](int32_t memory) {
      const Uses& uses = uses_[memory];
      return !uses.other && std::all_of(uses.writers.begin(), uses.writers.end(),
                                        [&](size_t i) { return parts_.steps[i].kept; });
    };
    const PlanStep& step = parts_.steps[index];
    for (const int32_t memory : step.written) {
      const Uses& uses = uses_[memory];
      if (uses.first_node <= index) return false;
      for (const size_t reader : uses.readers) {
        if (reader < index && !parts_.steps[reader].kept) return false;
      }
    }
    const std::vector<int32_t> read = read_by(step, places_);
    return std::all_of(step.written.begin(), step.written.end(), kept) &&
           std::all_of(read.begin(), read.end(), kept);
  }

  PlanParts& parts_;
  const TensorPlaces places_;
  std::vector<Uses> uses_;
};

const Tensor& outside_of(const PlanParts& parts, int32_t buffer) {
  return parts.recorded.outside[static_cast<size_t>(parts.graph.buffers[buffer].index)];
}

}  // namespace

void mark_kept_steps(PlanParts* parts) {
  if (is_disabled(kKept)) return;
  Marking marking(parts);
  marking.mark();
  marking.narrow();
}

void gather_kept_steps(PlanParts* parts) {
  Marking(parts).narrow();
  std::vector<size_t> others_before(parts->steps.size() + 1);  // of each step
  for (size_t i = 0; i < parts->steps.size(); ++i) {
    others_before[i + 1] = others_before[i] + (parts->steps[i].kept ? 0 : 1);
  }
  parts->num_kept = parts->steps.size() - others_before.back();
  if (parts->num_kept == 0) return;
  for (Interpreted& each : parts->nodes) {
    each.before = parts->num_kept + others_before[each.before];
  }
  std::stable_partition(parts->steps.begin(), parts->steps.end(),
                        [](const PlanStep& step) { return step.kept; });
  const TensorPlaces places = places_of(*parts);
  std::vector<bool> read(parts->memories.size());
  for (size_t i = 0; i < parts->num_kept; ++i) {
    for (const int32_t memory : read_by(parts->steps[i], places)) read[memory] = true;
    for (const int32_t memory : parts->steps[i].written) {
      parts->memories[memory].kind = PlanMemory::kKept;
    }
  }
  for (const int32_t buffer : parts->sources) {
    if (read[parts->buffers[buffer]]) parts->kept_sources.push_back(buffer);
  }
}

bool KeptFrom::holds(const PlanParts& parts) const {
  if (!noted_) return false;
  for (size_t i = 0; i < states_.size(); ++i) {
    const Tensor& source = outside_of(parts, parts.kept_sources[i]);
    const mt_storage& now = source.impl()->storage->abi;
    if (now.id != states_[i].id || now.version != states_[i].version || !counts_writes(source)) {
      return false;
    }
  }
  return true;
}

void KeptFrom::note(const PlanParts& parts) {
  states_.clear();
  for (const int32_t buffer : parts.kept_sources) {
    const mt_storage& now = outside_of(parts, buffer).impl()->storage->abi;
    states_.push_back({now.id, now.version});
  }
  noted_ = true;
}

}  // namespace mytorch::graph
