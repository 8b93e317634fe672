// The layer's wrapper of operators registered at run time: those that decompose run their body with
// batched tensors. The bodies of others may read memory, so they run once for each example.
#include "dispatcher/custom/custom.h"

#include <bit>
#include <utility>
#include <vector>

#include "autograd/vmap/rules.h"
#include "mytorch/grad_mode.h"

namespace mytorch::autograd::batch {
namespace {

std::vector<Value> run(const CustomOperator& op, const std::vector<Value>& args) {
  BatchedOperands seen;
  for (const Value& value : args) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      if (tensor->defined()) seen.add(tensor->impl(), op.info.base);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      for (const Tensor& each : *list) {
        if (each.defined()) seen.add(each.impl(), op.info.base);
      }
    }
  }
  if (!inside()) return next_custom(kLayerBatch, op, args);
  if (!seen.batched) {
    const BatchScope scope(outside());
    return call_custom(op, args);
  }
  constexpr int kAutograd = std::countr_zero(uint32_t{kLayerAutograd});
  void* const recorder = op.entry.wrappers[kAutograd][kFunction];
  if (seen.recorded && !state.recorded && grad_enabled() && recorder != nullptr) {
    const BatchScope scope({state.level, true, state.bodies}, true);
    return reinterpret_cast<CustomWrapper>(recorder)(op, args);
  }
  BatchedCall call(op.info, args);
  call.invoke = [&](const Value* values, std::vector<Value>* results) {
    *results = call_custom(op, {values, values + args.size()});
  };
  if (op.decomposes()) {
    call.body = [&](std::vector<Value>* results) { *results = op.spec.body(args); };
  }
  return call.run(nullptr);
}

[[maybe_unused]] const bool custom_installed = (batch_custom = run, true);

}  // namespace
}  // namespace mytorch::autograd::batch
