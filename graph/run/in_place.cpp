#include "graph/run/in_place.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/table/fields.h"
#include "graph/ir/switches.h"
#include "mytorch/abi_fused.h"
#include "mytorch/check.h"

namespace mytorch::graph {
namespace {

struct Operand {
  const mt_tensor* tensor;
  size_t memory;
  int64_t offset;
};

bool same_elements(const Operand& a, const Operand& b) {
  const auto& x = a.tensor->dl;
  const auto& y = b.tensor->dl;
  return a.offset == b.offset && x.ndim == y.ndim && x.dtype.bits == y.dtype.bits &&
         std::equal(x.shape, x.shape + x.ndim, y.shape) &&
         std::equal(x.strides, x.strides + x.ndim, y.strides);
}

// Returns whether the step's kernels take a result that is exactly one of the operands, whichever:
// pointwise ones. Others may take some operands and decline the rest, as addmm takes `self` alone.
// A fused loop over rows reads them more than once, so only loops over elements are asked.
bool takes_alias(const PlanStep& step) {
  if (step.region != nullptr) return false;
  if (step.fused == nullptr) {
    return step.entry->info->meaning == Meaning::kPointwise && takes_alias(*step.entry, step.slot);
  }
  return static_cast<const mt_fused_args*>(step.args.get())->inner == 0;
}

}  // namespace

std::vector<size_t> lay_in_place(const PlanParts& parts, std::vector<Lifetime>* lifetimes) {
  std::vector<size_t> root(parts.memories.size());
  std::iota(root.begin(), root.end(), size_t{0});
  if (is_disabled(kInPlace)) return root;
  const TensorPlaces places = places_of(parts);
  // The step that follows the first interpreted node that uses a memory.
  std::vector<size_t> noded(parts.memories.size(), SIZE_MAX);
  for (const Interpreted& each : parts.nodes) {
    const auto use = [&](ValueId id) {
      size_t& first = noded[static_cast<size_t>(parts.buffers[parts.graph.values[id].buffer])];
      first = std::min(first, each.before);
    };
    parts.graph.nodes[each.node].for_each_operand(use);
    parts.graph.nodes[each.node].for_each_result(use);
  }
  const auto intermediate = [&](size_t memory) {
    return parts.memories[memory].kind == PlanMemory::kArena;
  };
  std::vector<Operand> read, written;
  for (size_t i = 0; i < parts.steps.size(); ++i) {
    const PlanStep& step = parts.steps[i];
    if (!takes_alias(step)) continue;
    read.clear();
    written.clear();
    const auto add = [&](std::vector<Operand>* to, const mt_tensor* t) {
      const auto at = places.find(t);
      if (at == places.end()) return;
      to->push_back({t, root[static_cast<size_t>(at->second.memory)], at->second.offset});
    };
    const OpInfo& op = *step.entry->info;
    for_each_input(op, step.args.get(),
                   [&](const mt_tensor*& t, const ArgInfo&) { add(&read, t); });
    for_each_output(op, step.args.get(),
                    [&](const mt_tensor*& t, const OutputInfo&) { add(&written, t); });
    for (Operand& result : written) {
      const size_t memory = result.memory;
      const Lifetime& made = (*lifetimes)[memory];
      // Memory that is made before the step, or is of more than one result, has its place.
      if (!intermediate(memory) || made.first != i || noded[memory] <= i) continue;
      const auto alone = [&](size_t of) {
        return std::count_if(written.begin(), written.end(),
                             [&](const Operand& other) { return other.memory == of; }) == 1;
      };
      if (!alone(memory)) continue;
      for (const Operand& operand : read) {
        const size_t other = operand.memory;
        if (other == memory || !intermediate(other) || (*lifetimes)[other].last != i ||
            parts.memories[other].device != parts.memories[memory].device ||
            parts.memories[other].bytes != parts.memories[memory].bytes ||
            !same_elements(operand, result)) {
          continue;
        }
        // The step may read the elements by this operand alone, or by others that are equal to it.
        const auto apart = [&](const Operand& each) {
          return each.memory == other && !same_elements(each, result);
        };
        const auto is_other = [&](const Operand& each) { return each.memory == other; };
        if (std::any_of(read.begin(), read.end(), apart) ||
            std::any_of(written.begin(), written.end(), is_other)) {
          continue;
        }
        if (dumps(kInPlace)) {
          detail::tell(absl::StrCat("[compile] in place: result ", &result - written.data(), " of ",
                                    op.name, " over operand ", &operand - read.data()));
        }
        (*lifetimes)[other].last = (*lifetimes)[memory].last;
        std::replace(root.begin(), root.end(), memory, other);
        result.memory = other;
        break;
      }
    }
  }
  return root;
}

}  // namespace mytorch::graph
