// Forward and backward of FullyShardedDataParallel: what gathers, shows, frees and reduces.
#include <any>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/callback.h"
#include "mytorch/autograd/function.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/zeros.h"
#include "nn/parallel/sharded_state.h"

namespace mytorch::nn {

using distributed::ReduceOp;
using sharded::Parameter;

// The whole parameters of a flat as results of its shards.
struct FullyShardedDataParallel::State::Gather : autograd::Function<Gather> {
  static constexpr const char* kName = "FullyShardedDataParallel";
  struct Place {
    std::shared_ptr<State> state;
    size_t unit, flat;
  };
  static std::vector<Tensor> forward(autograd::FunctionContext* ctx, const Place& place,
                                     const std::vector<Tensor>& /*leaves*/) {
    ctx->set_materialize_grads(false);
    ctx->mark_once_differentiable();
    ctx->saved_data["place"] = place;
    const Flat& flat = place.state->units[place.unit].flats[place.flat];
    std::vector<Tensor> whole;
    for (const Parameter& p : flat.parameters) whole.push_back(flat.whole(p));
    return whole;
  }
  static autograd::tensor_list backward(autograd::FunctionContext* ctx,
                                        const autograd::tensor_list& gradients) {
    const Place place = std::any_cast<Place>(ctx->saved_data["place"]);
    place.state->reduce(place.unit, place.flat, gradients);
    // The gradients of the shards are set when they have been reduced.
    const Flat& flat = place.state->units[place.unit].flats[place.flat];
    return autograd::tensor_list(1 + flat.leaves.size());
  }
};

void FullyShardedDataParallel::State::begin() {
  if (forwards++ > 0) return;
  // What an earlier forward without a backward, or a failure, has left.
  for (size_t i = 0; i < units.size(); ++i) release(i);
  reduction = {};
  forget_arrivals();
  backward = false;
  calls.clear();
}

void FullyShardedDataParallel::State::end(bool failed) {
  if (--forwards > 0) return;
  for (size_t i = 0; i < units.size(); ++i) {
    const bool kept = !failed && grad_enabled() && units[i].works.empty() &&
                      (i == 0 || !options.reshard_after_forward ||
                       (!calls.empty() && calls.back() == i));  // the first that backward needs
    if (kept) {
      show_shards(i);
    } else {
      release(i);
    }
  }
  // From here on, the host may write to the shards.
  if (copies != nullptr) copies->finish();
  if (!failed) order = calls;
}

Tensor FullyShardedDataParallel::State::before(size_t index, const Tensor& input) {
  if (!alive || (forwards == 0 && !autograd::in_backward())) {
    fail(ErrorCode::kValue, "[FullyShardedDataParallel] ",
         index == 0 ? "the module" : units[index].name,
         " is called by itself: call the FullyShardedDataParallel, or hold its forward() while "
         "you call the module");
  }
  Unit& unit = units[index];
  if (forwards > 0) {
    const size_t at = calls.size();
    calls.push_back(index);
    gather(index);
    if (options.prefetch && at + 1 < order.size() && order[at] == index) start(order[at + 1]);
  } else {
    before_backward(index);  // recomputation
  }
  for (size_t f = 0; f < unit.flats.size(); ++f) {
    const Flat& flat = unit.flats[f];
    std::vector<Tensor> whole;
    if (flat.trains && grad_enabled()) {
      whole = Gather::apply(Gather::Place{shared_from_this(), index, f}, flat.leaves);
    } else {
      for (const Parameter& p : flat.parameters) whole.push_back(flat.whole(p));
    }
    for (size_t i = 0; i < whole.size(); ++i) show(unit, flat, i, whole[i]);
  }
  unit.called = true;
  const MixedPrecision& precision = options.mixed_precision;
  if (precision.cast_inputs && precision.param_dtype.has_value() && input.defined() &&
      is_floating_point(input.dtype()) && input.dtype() != *precision.param_dtype) {
    return input.to(*precision.param_dtype);
  }
  return Tensor();
}

void FullyShardedDataParallel::State::after(size_t index, const Tensor& output) {
  if (!std::exchange(units[index].called, false)) {
    fail(ErrorCode::kUnsupported, "[FullyShardedDataParallel] the first argument of ",
         units[index].name,
         " is not a tensor, so that its parameters were not gathered: choose "
         "units that take a tensor");
  }
  if (forwards == 0) return;  // recomputation: the backward of the unit follows
  show_shards(index);
  if (grad_enabled() && output.defined() && output.requires_grad()) {
    output.register_hook(
        [state = shared_from_this(), index](const Tensor&) { state->before_backward(index); });
  }
  if (index == 0 || (grad_enabled() && !options.reshard_after_forward)) return;
  const bool last = calls.size() == order.size() && grad_enabled();
  if (!last) release(index);
}

void FullyShardedDataParallel::State::enter_backward() {
  if (!alive) {
    fail(ErrorCode::kValue,
         "[FullyShardedDataParallel] backward comes after the object was destroyed: keep it until "
         "then");
  }
  if (std::exchange(backward, true)) return;
  backward_calls.clear();
  for (Unit& unit : units) unit.differentiated = 0;
  autograd::queue_callback([state = shared_from_this()] { state->end_backward(); });
}

void FullyShardedDataParallel::State::before_backward(size_t index) {
  enter_backward();
  Unit& unit = units[index];
  if (unit.shown) return;
  gather(index);
  const size_t at = backward_calls.size();
  backward_calls.push_back(index);
  if (options.prefetch && at + 1 < backward_order.size() && backward_order[at] == index) {
    start(backward_order[at + 1]);
  }
  const NoGradGuard no_grad;
  // For recomputation; the graph that it makes is dropped.
  for (const Flat& flat : unit.flats) {
    for (size_t i = 0; i < flat.parameters.size(); ++i) {
      const Tensor whole = flat.whole(flat.parameters[i]);
      if (flat.trains) whole.requires_grad_();
      show(unit, flat, i, whole);
    }
  }
}

void FullyShardedDataParallel::State::reduce(size_t index, size_t f,
                                             const std::vector<Tensor>& gradients) {
  enter_backward();
  Unit& unit = units[index];
  Flat& flat = unit.flats[f];
  const NoGradGuard no_grad;
  const ScalarType dtype = options.mixed_precision.reduce_dtype.value_or(compute_type(flat));
  Tensor buffer = mytorch::zeros({flat.total}, dtype, device);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const Parameter& p = flat.parameters[i];
    buffer.narrow(0, p.offset, p.numel).view(p.sizes).copy_(gradients[i]);
  }
  if (flat.sums.defined()) buffer.add_(flat.sums);
  flat.sums = sync ? Tensor() : buffer;
  if (++unit.differentiated == unit.num_trained()) {
    unit.differentiated = 0;
    release(index);
  }
  if (!sync) return;
  // One reduction at a time runs beside backward, so that whole gradients of at most two units
  // exist.
  finish_reduction();
  reduction.flat = &flat;
  reduction.result = mytorch::empty({flat.length}, dtype, device);
  reduction.work =
      group.reduce_scatter(reduction.result, buffer, {ReduceOp::kAverage}, /*async=*/true);
}

void FullyShardedDataParallel::State::finish_reduction() {
  Reduction done = std::exchange(reduction, {});
  if (done.flat == nullptr) return;
  done.work.wait();
  const NoGradGuard no_grad;
  const Tensor result = done.result.to(done.flat->dtype);
  if (copies == nullptr) return add_gradient(*done.flat, result);
  copies->wait(left);  // for the memory of the one before
  arrivals.push_back({done.flat, copies->host_tensor(done.flat->length, done.flat->dtype)});
  const Tensor& here = arrivals.back().gradient;
  left = copies->run([&] { here.copy_(result, /*non_blocking=*/true); });
  leaving = result;
}

void FullyShardedDataParallel::State::add_gradient(const Flat& flat, const Tensor& gradient) {
  const int64_t first = flat.length * group.rank();
  for (const Parameter& p : flat.parameters) {
    const Tensor part = p.begin == p.end
                            ? gradient.narrow(0, 0, 0)
                            : gradient.narrow(0, p.offset + p.begin - first, p.end - p.begin);
    if (const Tensor grad = p.shard.grad(); grad.defined()) {
      grad.detach().add_(part);
    } else {
      p.shard.set_grad(part.detach());
    }
  }
}

void FullyShardedDataParallel::State::forget_arrivals() {
  if (copies != nullptr) copies->finish();
  leaving = {};
  left = nullptr;
  arrivals.clear();
}

void FullyShardedDataParallel::State::take_arrivals() {
  const NoGradGuard no_grad;
  if (copies != nullptr) copies->finish();
  for (const Arrival& arrival : arrivals) add_gradient(*arrival.flat, arrival.gradient);
  forget_arrivals();
}

void FullyShardedDataParallel::State::end_backward() {
  backward = false;
  backward_order = backward_calls;
  finish_reduction();
  for (size_t i = 0; i < units.size(); ++i) release(i);
  take_arrivals();
}

}  // namespace mytorch::nn
