// Telling what would run, and why.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/measured.h"
#include "dispatcher/choice/observe.h"
#include "dispatcher/choice/state.h"
#include "dispatcher/table/fields.h"
#include "mytorch/choice.h"

namespace mytorch {

std::string why_not(const OpInfo& op, const Candidate& candidate, int device_slot,
                    const void* args) {
  if (candidate.is_oracle()) return "is the oracle, which is used only when pinned";
  const mt_candidate* kernel = &candidate.abi;
  if (candidate.compiled) {
    kernel = static_cast<CompiledOp*>(candidate.abi.self)->find(args);
    if (kernel == nullptr) return "does not compile this program for these types";
  }
  if (candidate.knows < op.args_size) {
    if (const char* name = unknown_argument(op, candidate.knows, args)) {
      return absl::StrCat("was built for an older schema, without '", name, "'");
    }
  }
  if (kernel->supports != nullptr) {
    if (const char* reason = kernel->supports(kernel->self, args)) return reason;
  }
  const Fit f = fit(op, *kernel, device_slot, args);
  return f.takes || f.convertible ? "" : "takes only dense operands, and there is no copy_ kernel";
}

std::string candidate_id(const Candidate& candidate) {
  return absl::StrCat(candidate.backend->name, " ", candidate.backend->version, "/",
                      candidate.abi.name != nullptr ? candidate.abi.name : "?");
}

namespace {

Explanation explain_call(const KernelCall& call) {
  const OpInfo& op = *call.entry->info;
  OpState& state = state_of(*call.entry);
  Explanation e{op.name, describe_call(op, *call.ctx, call.args), "priority", {}};
  const CandidateList* list = state.lists[call.slot].load(std::memory_order_acquire);
  if (list == nullptr) return e;
  const Backend* pinned = pinned_backend(state, call.slot);
  const uint64_t key = signature(*state.signature, *call.ctx, call.args);
  std::vector<Timing> timings;
  for (Measurement& m : MeasuredTable::get().of(op.name, device_label(call.slot))) {
    if (m.signature == key) timings = std::move(m.timings);
  }
  for (const Candidate& c : list->ordered) {
    Candidacy candidacy;
    candidacy.backend = c.backend->name;
    candidacy.kernel = c.abi.name != nullptr ? c.abi.name : "?";
    candidacy.priority = c.abi.priority;
    candidacy.reason =
        c.is_oracle() && pinned == c.backend ? "" : why_not(op, c, call.slot, call.args);
    for (const Timing& t : timings) {
      if (t.candidate == candidate_id(c)) candidacy.seconds = t.seconds;
    }
    e.candidates.push_back(std::move(candidacy));
  }
  const auto choose_first = [&](auto&& fits) {
    for (size_t i = 0; i < e.candidates.size(); ++i) {
      if (!e.candidates[i].reason.empty() || !fits(list->ordered[i])) continue;
      e.candidates[i].chosen = true;
      return true;
    }
    return false;
  };
  if (pinned != nullptr && choose_first([&](const Candidate& c) { return c.backend == pinned; })) {
    e.by = "pin";
    return e;
  }
  const Winners* winners = state.winners[call.slot].load(std::memory_order_acquire);
  if (pinned == nullptr && winners != nullptr && is_worth_looking(*state.signature, call.args)) {
    const Candidate* winner = winners->find(key).candidate;
    if (winner != nullptr && choose_first([&](const Candidate& c) { return &c == winner; })) {
      e.by = "measured";
      return e;
    }
  }
  choose_first([](const Candidate& c) { return !c.is_oracle(); });
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
