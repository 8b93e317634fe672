// The state of parameters: its shape, type and first value.
#include <vector>

#include "mytorch/graph.h"
#include "mytorch/nn/optim/optimizer.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/empty_like.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/to.h"

namespace mytorch::nn::optim {

Optimizer::StateLayout Optimizer::state_layout(size_t, const Tensor& parameter) const {
  const IntList sizes = parameter.sizes();
  return {.shape = {sizes.begin(), sizes.end()}};
}

std::vector<Tensor> Optimizer::Batch::state(size_t i, double value) const {
  std::vector<Tensor> list;
  for (size_t slot = 0; slot < slots.size(); ++slot) list.push_back(state_of(slot, i, value));
  return list;
}

Tensor Optimizer::Batch::state_of(size_t slot, size_t i, double value) const {
  Tensor& state = slots[slot]->state[i];
  if (!state.defined()) {
    const Tensor parameter = as_reals(slots[slot]->parameter);
    run_uncaptured(parameter.device(), [&] {
      state = optimizer->empty_state(group, i, parameter);
      state.fill_(value);
    });
  }
  const ScalarType update = parameters[slot].dtype();
  if (!converted || state.dtype() == update || state.dtype() == kFloat64) return state;
  Tensor taken = state.to(update);
  conversions.emplace_back(taken, state);
  return taken;
}

// Returns the tensor of state i, uninitialized.
Tensor Optimizer::empty_state(size_t group, size_t i, const Tensor& parameter) const {
  const StateLayout layout = state_layout(i, parameter);
  const ScalarType dtype = layout.number ? kFloat64 : types(group, parameter).state;
  if (IntList(layout.shape) == parameter.sizes()) return empty_like(parameter.detach(), dtype);
  return empty(layout.shape, dtype, parameter.device());
}

}  // namespace mytorch::nn::optim
