#include "autograd/vmap/wrappers.h"

#include <bit>

#include "dispatcher/boxed/box.h"
#include "mytorch/grad_mode.h"

namespace mytorch::autograd::batch {
namespace {

constexpr int kAutograd = std::countr_zero(uint32_t{kLayerAutograd});

// Notes what the parameters of a call are.
struct Sees {
  BatchedOperands& seen;
  const char* op;
  void operator()(const Tensor& x) const {
    if (x.defined()) seen.add(x.impl(), op);
  }
  void operator()(const Operand& x) const {
    if (x.is_tensor()) seen.add(x.impl(), op);
  }
  void operator()(const TensorList& x) const {
    for (const Tensor& each : x) (*this)(each);
  }
  template <class T>
  void operator()(const T&) const {}
};

struct Flags {
  const FormInfo& form;
  uint32_t& flags;
  int param = 0;
  template <class T>
  void operator()(const T& x) {
    const int at = param++;
    if (form.written_lists == 0 || (form.written_lists >> at & 1) != 0) flags |= layer_flags(x);
  }
};

// The parameters as Values, without the pointer that tells which results are wanted.
struct Boxes {
  std::vector<Value>& values;
  const bool*& wanted;
  void operator()(const bool* x) const { wanted = x; }
  template <class T>
  void operator()(const T& x) const {
    values.push_back(boxing::box(x));
  }
};

bool draws(const Params& params) {
  constexpr uint8_t generator = param_type<std::optional<Generator>>();
  for (size_t i = 0; i < params.size; ++i) {
    if (params.types[i] == generator) return true;
  }
  return false;
}

}  // namespace

WrappedCall::WrappedCall(const WrappedForm& of, const void* const* values) {
  const FormInfo& form = of.form;
  const Params params{of.types, values, of.size};
  BatchedOperands seen;
  for_each_param(params, Sees{seen, form.op.base});
  if (state.level == nullptr) {
    // Of the layers below, tensors request none.
    masked_.emplace(kLayerBatch | (kLayerBatch - 1));
    goes_on_ = true;
    target_ = enter(form, wanted_layers(0));
    return;
  }
  if (!seen.batched && !(draws(params) && state.level->randomness != Randomness::kSame)) {
    scope_.emplace(outside());
    uint32_t flags = 0;
    for_each_param(params, Flags{form, flags});
    goes_on_ = true;
    target_ = enter(form, wanted_layers(flags));
    return;
  }
  const bool recorded = seen.recorded && !state.recorded && grad_enabled();
  if (form.form == kFunction && recorded) {
    if (void* const wrapper = form.entry.wrappers[kAutograd][kFunction]) {
      // A derived gradient is recorded through the operators of its program.
      scope_.emplace(BatchState{state.level, !form.op.derived, state.bodies}, !form.op.derived);
      goes_on_ = true;
      target_ = wrapper;
      return;
    }
  }
  // Without a wrapper of its own, the operators of its body are recorded.
  compute(of, values, recorded);
}

void WrappedCall::compute(const WrappedForm& of, const void* const* values, bool recorded) {
  const FormInfo& form = of.form;
  std::vector<Value> args;
  args.reserve(of.size);
  const bool* wanted = nullptr;
  for_each_param({of.types, values, of.size}, Boxes{args, wanted});
  if (form.form != kFunction) {
    const bool inplace = form.form == kInplace;
    write_form(form.op, inplace ? 1 : form.outs, inplace, args);
    return;
  }
  if (of.check_shapes != nullptr) of.check_shapes(values);
  BatchedCall call(form.op, std::move(args));
  if (wanted != nullptr) {
    call.invoke = [&form, wanted](const Value* given, std::vector<Value>* found) {
      form.op.boxed_wanted(wanted, given, found);
    };
  }
  call.recorded_by_body = recorded && form.op.differentiable;
  if (of.body != nullptr) {
    call.body = [&](std::vector<Value>* found) { of.body(values, found); };
  }
  results_ = call.run(find_rule(form.op));
}

}  // namespace mytorch::autograd::batch
