// Rules of operators that write tensors or draw random numbers.
#include <optional>

#include "autograd/vmap/rule_functions.h"
#include "core/types/errors.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty_like.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/native_dropout_backward.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/unsqueeze.h"
#include "ops/gradients.h"

namespace mytorch::autograd::batch::rules {

bool copy(BatchedCall& call) {
  BatchedArg& self = call.first();
  BatchedArg& src = *call.all()[1];
  if (src.batched && !self.batched) {
    call.refuse(
        "writes batched values into a tensor that all examples share: write into a batched one, "
        "such "
        "as zeros_like(x) of a batched x, or build the result with cat, stack or where");
  }
  if (src.rank > self.rank) {
    fail(ErrorCode::kShape, "[", call.op.base, "] a tensor of ", src.rank,
         " dimensions does not broadcast to one of ", self.rank);
  }
  if (src.batched) call.raise(src, self.rank);
  mytorch::copy_(self.tensor, src.tensor);
  return true;
}

bool fill(BatchedCall& call) {
  if (call.all().size() == 2 && call.all()[1]->batched) return copy(call);
  call.invoke_parts();
  return true;
}

// rand(size) and the like.
bool random_of_size(BatchedCall& call) {
  call.shared = call.same_randomness();
  const int size = call.find("size");
  if (!call.shared) call.args[size] = prefixed(call.size(), call.ints(size));
  call.invoke_parts();
  return true;
}

bool random_permutation(BatchedCall& call) {
  call.shared = call.same_randomness();
  std::vector<Tensor> each;
  for (int64_t i = 0; i < (call.shared ? 1 : call.size()); ++i) {
    call.invoke_parts();
    each.push_back(call.result());
  }
  call.results = {call.shared ? each[0] : mytorch::stack(each)};
  return true;
}

// rand_like(self) and the like.
bool random_like(BatchedCall& call) {
  BatchedArg& self = call.first();
  if (call.same_randomness()) {
    if (self.batched) self.tensor = mytorch::select(self.tensor, 0, 0);
    call.shared = true;
  } else {
    call.make_batched(self);
  }
  call.invoke_parts();
  return true;
}

// Operators that depend on the values of `self`, too.
bool random_from(BatchedCall& call) {
  if (call.same_randomness()) return false;
  call.make_batched(call.first());
  call.invoke_parts();
  return true;
}

bool multinomial(BatchedCall& call) {
  BatchedArg& self = call.first();
  if (call.same_randomness() || self.rank == 0 || self.rank > 2) return false;
  call.make_batched(self);
  if (self.rank == 2) self.tensor = folded(self.tensor);
  call.invoke_parts();
  if (self.rank == 2) call.results = {unfolded(call.result(), call.size())};
  return true;
}

bool dropout(BatchedCall& call) {
  BatchedArg& input = call.first();
  if (!call.same_randomness() || !input.batched) return random_from(call) || direct(call);
  // The mask of one example, for all.
  const Value& train = call.args[call.find("train")];
  const std::optional<bool> training =
      train.is_none() ? std::nullopt : std::optional(train.scalar().to_bool());
  const double p = call.args[call.find("p")].scalar().to_double();
  const Tensor value = input.tensor;
  input.tensor = mytorch::ones_like(mytorch::select(value, 0, 0));
  call.invoke_parts();
  const Tensor mask = mytorch::expand(mytorch::unsqueeze(call.result(1), 0), value.sizes());
  call.results = {mytorch::native_dropout_backward(value, mask, grads::dropout_scale(p, training)),
                  mask};
  return true;
}

bool random_write(BatchedCall& call) {
  BatchedArg& self = call.first();
  const int p = call.find("p");
  BatchedArg* probabilities = p >= 0 && call.has(p) ? &call.part(p) : nullptr;
  const bool same = call.same_randomness();
  const bool differs = !same || (probabilities != nullptr && probabilities->batched);
  if (!self.batched && differs) {
    call.refuse(
        "draws other numbers for each example into a tensor that all examples share: draw with "
        "rand, randn or rand_like, which return new ones");
  }
  if (same && probabilities != nullptr && probabilities->batched) return false;
  if (same && self.batched) {
    const Tensor value = self.tensor;
    self.tensor = mytorch::empty_like(mytorch::select(value, 0, 0));
    call.invoke_parts();
    mytorch::copy_(value, self.tensor);
    return true;
  }
  if (probabilities != nullptr && probabilities->batched) call.raise(*probabilities, self.rank);
  call.invoke_parts();
  return true;
}

}  // namespace mytorch::autograd::batch::rules
