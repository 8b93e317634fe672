// Which calls and loops fit into one.
#include <algorithm>
#include <optional>
#include <utility>

#include "dispatcher/choice/choice.h"
#include "graph/fusion/fusion_items.h"

namespace mytorch::graph {
namespace {

// What hosts make (mytorch/abi_fused.h), and a bound for the time of fusion.
constexpr size_t kMaxInputs = 8;
constexpr size_t kMaxOutputs = 6;
constexpr size_t kMaxCalls = 256;
// A loop with reductions runs row by row: it needs rows for every processor, and rows that stay in
// its memory.
constexpr int64_t kManyRows = 64;
constexpr int64_t kLongRow = 1 << 16;

// Returns whether an operand has one element for each of the loop.
bool has_elements(const LoopSpace& space, const FusedOperand& operand) {
  for (size_t d = 0; d < space.sizes.size(); ++d) {
    if (operand.strides[d] == 0) return false;
  }
  return true;
}

}  // namespace

std::optional<LoopSpace> Fusion::join_spaces(const LoopSpace& a, const LoopSpace& b) {
  std::optional<LoopSpace> space = common_space(a, b);
  if (!space.has_value()) return apart("they run over different shapes");
  if (space->columns == 0) return space;
  // Sums would be reordered.
  if (parts_.mode == CompileMode::kExact) return apart("kExact keeps the order of sums");
  if (space->columns > kLongRow) return apart("rows are too long");
  if (space->rows() < kManyRows) return apart("there are too few rows");
  return space;
}

std::nullopt_t Fusion::apart(const char* why) {
  why_ = why;
  return std::nullopt;
}

FusedOperand Fusion::operand_of(const LoopSpace& space, const MemoryAccess& access) const {
  return in_space(space, places_, *access.operand);
}

std::optional<FusionItem> Fusion::join(const FusionItem& a, const FusionItem& b) {
  if (!a.fusable) return apart("the other is no loop over elements or rows");
  std::optional<LoopSpace> space = join_spaces(a.space, b.space);
  if (!space.has_value()) return std::nullopt;
  const PlanStep& first = parts_.steps[a.steps[0]];
  const PlanStep& second = parts_.steps[b.steps[0]];
  if (first.slot != second.slot || first.device.index != second.device.index) {
    return apart("they run on different devices");
  }
  if (parts_.mode == CompileMode::kExact && first.kernel->backend != second.kernel->backend) {
    return apart("kExact keeps kernels of different backends");
  }
  const int64_t n = space->numel();
  bool shares = n <= kSmallLoop;
  for (const MemoryAccess& x : a.accesses) {
    for (const MemoryAccess& y : b.accesses) {
      if (x.memory != y.memory) continue;
      const FusedOperand p = operand_of(*space, x), q = operand_of(*space, y);
      const bool same = p == q, written = x.written || y.written;
      const auto reads_rounded = [](const MemoryAccess& access) {
        return !access.written && access.operand->compared;
      };
      if (written && parts_.mode != CompileMode::kExact && (reads_rounded(x) || reads_rounded(y))) {
        return apart("a comparison with a number needs elements that are rounded to 16 bits");
      }
      // Elements of one memory must correspond if it is written, or be selected from those that
      // were written.
      if (written && !same && !(x.written && selects_from(*space, y, p))) {
        return apart("an element of one needs other elements of the other");
      }
      shares = shares || (same && (written || has_elements(*space, p))) || p.size + q.size > 0;
    }
  }
  if (!shares) return apart("they share no elements");
  FusionItem joined = a;
  joined.space = *std::move(space);
  joined.steps.insert(joined.steps.end(), b.steps.begin(), b.steps.end());
  joined.accesses.insert(joined.accesses.end(), b.accesses.begin(), b.accesses.end());
  const FusedProgram program = program_of(joined);
  if (program.inputs().size() > kMaxInputs) return apart("they have too many operands");
  if (program.outputs().size() > kMaxOutputs) return apart("they have too many results");
  if (program.num_calls() > kMaxCalls) return apart("they are too many calls");
  if (!may_fail(joined, program)) {
    return apart("an index that is out of range must leave what they write as it was");
  }
  if (!compiles(joined, program)) return apart("the backend does not take the program");
  return joined;
}

bool Fusion::selects_from(const LoopSpace& space, const MemoryAccess& table,
                          const FusedOperand& elements) const {
  if (table.body == nullptr) return false;
  const std::optional<FusedOperand> own = elements_of_table(space, places_, *table.body);
  return own.has_value() && *own == elements;
}

bool Fusion::may_fail(const FusionItem& item, const FusedProgram& program) const {
  if (!program.selects()) return true;
  return item.space.columns != 0 && !program.writes_table() &&
         std::none_of(item.accesses.begin(), item.accesses.end(), [&](const MemoryAccess& access) {
           const PlanMemory::Kind kind = parts_.memories[static_cast<size_t>(access.memory)].kind;
           return access.written && (kind == PlanMemory::kSource || kind == PlanMemory::kConstant);
         });
}

bool Fusion::is_seen(const FusionItem& item, int32_t memory) const {
  if (parts_.memories[static_cast<size_t>(memory)].kind != PlanMemory::kArena) return true;
  size_t begin = SIZE_MAX;
  for (const size_t step : item.steps) begin = std::min(begin, time_of_[step]);
  const std::vector<MemoryUse>& uses = uses_[static_cast<size_t>(memory)];
  return std::any_of(uses.begin(), uses.end(), [&](const MemoryUse& use) {
    return use.time > begin &&
           std::find(item.steps.begin(), item.steps.end(), use.step) == item.steps.end();
  });
}

}  // namespace mytorch::graph
