// Explains which kernel runs a call, and why.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/complex.h"
#include "dispatcher/choice/measured.h"
#include "dispatcher/choice/observe.h"
#include "dispatcher/choice/state.h"
#include "dispatcher/table/fields.h"
#include "mytorch/choice.h"

namespace mytorch {

std::string why_not(const OpInfo& op, const KernelEntry& kernel, int device_slot,
                    const void* args) {
  if (kernel.is_reference()) return "is the reference, which runs only if pinned";
  const mt_kernel_entry* abi = &kernel.abi;
  if (kernel.compiled) {
    const CompiledKernel* found = static_cast<CompiledOp*>(kernel.abi.self)->find(args);
    if (found == nullptr) return "does not compile this program for these types";
    abi = &found->abi;
  }
  if (kernel.knows < op.args_size) {
    if (const char* name = unknown_argument(op, kernel.knows, args)) {
      return absl::StrCat("was built for an older schema, without '", name, "'");
    }
  }
  if (abi->supports != nullptr) {
    if (const char* reason = abi->supports(abi->self, args)) return reason;
  }
  if ((abi->flags & MT_TAKES_COMPLEX) == 0 && has_complex(op, args)) {
    return "takes no complex numbers";
  }
  const Fit f = fit(op, *abi, device_slot, args);
  return f.takes || f.convertible ? ""
                                  : "takes only contiguous operands, and there is no copy_ kernel";
}

std::string kernel_id(const KernelEntry& kernel) {
  return absl::StrCat(kernel.backend->name, " ", kernel.backend->version, "/",
                      kernel.abi.name != nullptr ? kernel.abi.name : "?");
}

namespace {

Explanation explain_call(const KernelCall& call) {
  const OpInfo& op = *call.entry->info;
  OpState& state = state_of(*call.entry);
  Explanation e{op.name, describe_call(op, *call.ctx, call.args), "priority", {}};
  const KernelList* list = state.lists[call.slot].load(std::memory_order_acquire);
  if (list == nullptr) return e;
  const Backend* pinned = pinned_backend(state, call.slot);
  const uint64_t key = signature(*state.signature, *call.ctx, call.args);
  std::vector<Timing> timings;
  for (Measurement& m : MeasuredTable::get().of(op.name, device_label(call.slot))) {
    if (m.signature == key) timings = std::move(m.timings);
  }
  for (const KernelEntry& kernel : list->ordered) {
    ExplainedKernel explained;
    explained.backend = kernel.backend->name;
    explained.kernel = kernel.abi.name != nullptr ? kernel.abi.name : "?";
    explained.priority = kernel.abi.priority;
    if (!kernel.is_reference() || pinned != kernel.backend) {
      explained.reason = why_not(op, kernel, call.slot, call.args);
    }
    for (const Timing& t : timings) {
      if (t.kernel == kernel_id(kernel)) explained.seconds = t.seconds;
    }
    e.kernels.push_back(std::move(explained));
  }
  const auto choose_first = [&](auto&& fits) {
    for (size_t i = 0; i < e.kernels.size(); ++i) {
      if (!e.kernels[i].reason.empty() || !fits(list->ordered[i])) continue;
      e.kernels[i].chosen = true;
      return true;
    }
    return false;
  };
  if (pinned != nullptr &&
      choose_first([&](const KernelEntry& k) { return k.backend == pinned; })) {
    e.by = "pin";
    return e;
  }
  const Winners* winners = state.winners[call.slot].load(std::memory_order_acquire);
  if (pinned == nullptr && winners != nullptr && is_worth_looking(*state.signature, call.args)) {
    const KernelEntry* winner = winners->find(key).kernel;
    if (winner != nullptr && choose_first([&](const KernelEntry& k) { return &k == winner; })) {
      e.by = "measured";
      return e;
    }
  }
  choose_first([](const KernelEntry& k) { return !k.is_reference(); });
  return e;
}

}  // namespace

std::vector<Explanation> explain(const std::string& op, const std::vector<Value>& args,
                                 const std::vector<NamedValue>& named) {
  std::vector<Explanation> found;
  const Observe observe([&](const KernelCall& call) { found.push_back(explain_call(call)); });
  call(op, args, named);
  return found;
}

}  // namespace mytorch
