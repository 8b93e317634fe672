// Rules of operators that compute each element alone.
#include <algorithm>
#include <optional>

#include "autograd/vmap/rule_functions.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/unsqueeze.h"

namespace mytorch::autograd::batch::rules {
namespace {

int category(ScalarType type) { return is_floating_point(type) ? 2 : type == kBool ? 0 : 1; }

// A 0-dim tensor promotes only by category, but with a batch dimension it would by type: converts
// it to the type of the others. If all are 0-dim, makes the unbatched ones 1-dim, so that all
// promote by type.
void keep_promotion(BatchedCall& call) {
  if (call.op.promote == Promote::kNone || call.op.promote == Promote::kFirst) return;
  std::vector<BatchedArg*> parts;  // that take part in promotion
  std::optional<ScalarType> type;
  for (int i = 0; i < call.op.num_args; ++i) {
    if (!call.op.args[i].promotes || !call.has(i)) continue;
    BatchedArg& part = call.part(i);
    parts.push_back(&part);
    if (part.rank == 0) continue;
    type = type.has_value() ? promote_types(*type, part.tensor.dtype()) : part.tensor.dtype();
  }
  for (BatchedArg* part : parts) {
    if (part->rank != 0) continue;
    if (!type.has_value()) {
      if (!part->batched) part->tensor = mytorch::unsqueeze(part->tensor, 0);
    } else if (part->batched && category(part->tensor.dtype()) <= category(*type)) {
      part->tensor = mytorch::to(part->tensor, *type);
    }
  }
}

}  // namespace

// Aligns the dimensions of the examples; operands without a batch dimension broadcast.
bool pointwise(BatchedCall& call) {
  const std::vector<BatchedArg*> parts = call.all();
  int64_t rank = 0;
  for (const BatchedArg* part : parts) rank = std::max(rank, part->rank);
  keep_promotion(call);
  for (BatchedArg* part : parts) {
    if (part->batched) call.raise(*part, rank);
  }
  call.invoke_parts();
  return true;
}

// The same for operators whose results do not broadcast: every operand is batched.
bool aligned(BatchedCall& call) {
  const std::vector<BatchedArg*> parts = call.all();
  int64_t rank = 0;
  for (const BatchedArg* part : parts) rank = std::max(rank, part->rank);
  for (BatchedArg* part : parts) {
    call.make_batched(*part);
    call.raise(*part, rank);
  }
  call.invoke_parts();
  return true;
}

}  // namespace mytorch::autograd::batch::rules
