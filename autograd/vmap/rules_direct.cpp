// Rules of operators that take a batched value as they take an example, or nearly so.
#include "autograd/vmap/rule_functions.h"
#include "core/types/errors.h"
#include "mytorch/ops/to.h"

namespace mytorch::autograd::batch::rules {

bool direct(BatchedCall& call) {
  if (!call.first().batched) return false;
  call.invoke_parts();
  return true;
}

// As above if only the first tensor is batched.
bool direct_first(BatchedCall& call) {
  for (BatchedArg* part : call.all()) {
    if (part->batched != (part == &call.first())) return false;
  }
  call.invoke_parts();
  return true;
}

bool converted(BatchedCall& call) {  // to(other) reads only the type and device of `other`
  call.shared = !call.first().batched;
  call.invoke_parts();
  return true;
}

bool new_like(BatchedCall& call) {  // new_zeros(self, size): batched, so that it can be written
  const int size = call.find("size");
  call.args[size] = prefixed(call.size(), call.ints(size));
  call.invoke_parts();
  return true;
}

bool pad(BatchedCall& call) {
  const int pad = call.find("pad");
  if (static_cast<int64_t>(call.ints(pad).size()) > 2 * call.first().rank) return false;
  return direct(call);
}

bool index_select(BatchedCall& call) {
  if (call.part("index").batched || call.first().rank == 0) return false;
  const int dim = call.find("dim");
  call.args[dim] = wrap_dim(call.integer(dim), call.first().rank, "index_select") + 1;
  call.invoke_parts();
  return true;
}

bool join(BatchedCall& call) {
  const std::vector<BatchedArg*> parts = call.all();
  const auto passed_over = [](const BatchedArg& part) {  // empty 1-dim tensors, as cat does
    return part.rank == 1 && part.tensor.size(-1) == 0;
  };
  std::vector<BatchedArg> kept;
  for (BatchedArg* part : parts) {
    if (part->rank == 0) return false;
    if (!passed_over(*part)) kept.push_back(*part);
  }
  if (kept.empty()) {
    for (BatchedArg* part : parts) kept.push_back(*part);
  }
  for (BatchedArg& part : kept) {
    if (part.rank != kept[0].rank) return false;
  }
  if (kept.size() != parts.size()) {  // they take part in promotion
    ScalarType type = parts[0]->tensor.dtype();
    for (BatchedArg* part : parts) type = promote_types(type, part->tensor.dtype());
    for (BatchedArg& part : kept) part.tensor = mytorch::to(part.tensor, type);
  }
  for (BatchedArg& part : kept) call.make_batched(part);
  call.args[1] = wrap_dim(call.integer(1), kept[0].rank, "cat") + 1;
  call.parts[0] = std::move(kept);
  call.invoke_parts();
  return true;
}

}  // namespace mytorch::autograd::batch::rules
