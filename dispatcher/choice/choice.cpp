#include "dispatcher/choice/choice.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/types/status.h"
#include "dispatcher/choice/complex.h"
#include "dispatcher/choice/measured.h"
#include "dispatcher/choice/observe.h"
#include "dispatcher/choice/state.h"
#include "dispatcher/table/programs.h"

namespace mytorch {
namespace {

int decline(void*, mt_ctx*, const void*) { return MT_DECLINED; }

// Returns whether a call must decompose under Kernels::kPrimitives. Copies do not: conversions,
// including those for other kernels, depend on them.
bool must_decompose(const OpInfo& op, const void* args) {
  if (op.meaning == Meaning::kComposite) return std::strcmp(op.name, "copy_") != 0;
  return can_decompose(op, args);
}

KernelRan run_by_priority(OpState& state, int slot, const KernelEntry* but, mt_ctx* ctx,
                          const void* args) {
  const KernelList* list = state.lists[slot].load(std::memory_order_acquire);
  for (const KernelEntry& kernel : list->ordered) {
    if (&kernel == but || kernel.is_reference()) continue;
    const int status = run_one(state, slot, kernel, ctx, args);
    if (status != MT_DECLINED) return {status, &kernel};
  }
  return {MT_DECLINED, nullptr};
}

// Out of line, so that the callers keep few registers alive and end in tail calls.
[[gnu::noinline]] int look_up_any(const Winners& winners, mt_ctx* ctx, const void* args) {
  const BoundKernel& found = winners.find(signature(winners.plan, *ctx, args)).runs;
  return found.run(found.self, ctx, args);
}

[[gnu::noinline]] int look_up(const Winners& winners, mt_ctx* ctx, const void* args) {
  uint64_t key;
  if (!signatures::simple(winners.plan, *ctx, args, &key)) return look_up_any(winners, ctx, args);
  const BoundKernel& found = winners.find(key).runs;
  return found.run(found.self, ctx, args);
}

// Runs a call of an operator with measurements, if nothing else (a pin, an observer, ...) applies.
int choose_measured(void* self, mt_ctx* ctx, const void* args) {
  const auto& winners = *static_cast<const Winners*>(self);
  if (is_worth_looking(winners.plan, args)) return look_up(winners, ctx, args);
  return winners.otherwise.run(winners.otherwise.self, ctx, args);
}

// Runs a call of an operator that has several kernels, or a conditional one.
KernelRan run_chosen(OpState& state, int slot, mt_ctx* ctx, const void* args) {
  const Kernels allowed = restricted.load(std::memory_order_relaxed);
  if (allowed == Kernels::kPrimitives && must_decompose(*state.entry->info, args)) {
    return {MT_DECLINED, nullptr};
  }
  const Backend* pinned = pinned_backend(state, slot);
  if (pinned != nullptr) {
    const KernelList* list = state.lists[slot].load(std::memory_order_acquire);
    for (const KernelEntry& kernel : list->ordered) {
      if (kernel.backend != pinned) continue;
      const int status = run_one(state, slot, kernel, ctx, args);
      if (status != MT_DECLINED) return {status, &kernel};
    }
  }
  if (allowed == Kernels::kPreferred) return {MT_DECLINED, nullptr};
  if (pinned == nullptr && choice_mode.load(std::memory_order_relaxed) == Choice::kMeasured &&
      is_worth_looking(*state.signature, args)) {
    const uint64_t key = signature(*state.signature, *ctx, args);
    const auto find = [&]() -> const KernelEntry* {
      const Winners* winners = state.winners[slot].load(std::memory_order_acquire);
      return winners != nullptr ? winners->find(key).kernel : nullptr;
    };
    const KernelEntry* winner = find();
    if (winner == nullptr && tunings.load(std::memory_order_relaxed) > 0) {
      tune(state, slot, ctx, args, key);
      winner = find();
    }
    if (winner != nullptr) {
      const int status = run_one(state, slot, *winner, ctx, args);
      if (status != MT_DECLINED) return {status, winner};
    }
  }
  return run_by_priority(state, slot, nullptr, ctx, args);
}

int run_observed(const KernelCall& call) {
  OpState& state = *call.entry->state.load(std::memory_order_relaxed);
  Observed observed(call);
  struct Watched {
    Watcher* watching;
    const KernelCall& call;
    const KernelRan& ran;
    ~Watched() {
      if (watching != nullptr) watching->after(call, ran);
    }
  } watched{watcher(), call, observed.ran};
  if (watched.watching != nullptr) watched.watching->before(call);
  observed.ran = run_chosen(state, call.slot, call.ctx, call.args);
  return observed.ran.status;
}

int choose(void* self, mt_ctx* ctx, const void* args) {
  const auto& [state, slot] = *static_cast<const OpState::Ref*>(self);
  if (anybody_observes()) return run_observed({state->entry, slot, ctx, args});
  return run_chosen(*state, slot, ctx, args).status;
}

std::mutex state_mutex;

bool several_kernels(const KernelList& list) {
  int n = 0;
  for (const KernelEntry& kernel : list.ordered) n += kernel.is_reference() ? 0 : 1;
  return n > 1;
}

// Rebuilds the winners of an operator from the table and its current kernels. The caller holds the
// state's mutex.
void renew_winners(OpState& state, int slot, const KernelList& list) {
  std::unique_ptr<Winners> winners;
  if (choice_mode.load() == Choice::kMeasured && several_kernels(list)) {
    const auto found = MeasuredTable::get().of(state.entry->info->name, device_label(slot));
    if (!found.empty()) {
      winners = std::make_unique<Winners>(found.size(), *state.signature,
                                          list.is_direct() ? list.direct : state.choice[slot],
                                          state, slot);
    }
    for (const Measurement& m : found) {
      // Timings are sorted. A kernel that is no longer registered is skipped.
      for (const Timing& t : m.timings) {
        const auto kernel = std::find_if(
            list.ordered.begin(), list.ordered.end(),
            [&](const KernelEntry& k) { return !k.is_reference() && kernel_id(k) == t.kernel; });
        if (kernel == list.ordered.end()) continue;
        winners->add(m.signature, &*kernel);
        break;
      }
    }
  }
  state.winners[slot].store(winners.get(), std::memory_order_release);
  if (winners != nullptr) state.kept_winners.push_back(std::move(winners));
}

}  // namespace

std::atomic<Kernels> restricted{Kernels::kAll};
std::atomic<Choice> choice_mode{Choice::kPriority};
std::atomic<int> tunings{0};
std::atomic<const Backend*> pins[kMaxDeviceTypes];

const BoundKernel OpEntry::kDeclines = {decline, nullptr};

Winners::Winners(size_t size, const SignaturePlan& plan_, const BoundKernel& otherwise_,
                 OpState& state_, int slot_)
    : plan(plan_),
      otherwise(otherwise_),
      state(state_),
      slot(slot_),
      chooses{choose_measured, this} {
  const auto capacity = std::bit_ceil(std::max<size_t>(2 * size, 8));
  shift_ = 64 - std::countr_zero(capacity);
  asked_.push_back({*this, nullptr});
  // Probing runs past the last index by at most `size` entries; the last entry stays empty.
  entries_.resize(capacity + size + 1, {0, nullptr, {ask, &asked_.back()}});
}

void Winners::add(uint64_t signature, const KernelEntry* kernel) {
  BoundKernel runs = {kernel->abi.run, kernel->abi.self};
  if (!kernel->unconditional) {
    asked_.push_back({*this, kernel});
    runs = {ask, &asked_.back()};
  }
  Entry* e = &entries_[signature >> shift_];
  while (e->signature != 0) ++e;
  *e = {signature, kernel, runs};
}

int Winners::ask(void* self, mt_ctx* ctx, const void* args) {
  const auto& [winners, kernel] = *static_cast<const Asked*>(self);
  if (kernel != nullptr) {
    const int status = run_one(winners.state, winners.slot, *kernel, ctx, args);
    if (status != MT_DECLINED) return status;
  }
  return run_by_priority(winners.state, winners.slot, kernel, ctx, args).status;
}

int run_one(OpState& state, int slot, const KernelEntry& kernel, mt_ctx* ctx, const void* args) {
  const OpInfo& op = *state.entry->info;
  if (kernel.unconditional &&
      ((kernel.abi.flags & MT_TAKES_COMPLEX) != 0 || !has_complex(op, args))) {
    return kernel.abi.run(kernel.abi.self, ctx, args);
  }
  const mt_kernel_entry* abi = &kernel.abi;
  if (kernel.compiled) {
    const CompiledKernel* found = static_cast<CompiledOp*>(kernel.abi.self)->find(args);
    if (found == nullptr) return MT_DECLINED;
    abi = &found->abi;
    if (found->takes(args) && ((abi->flags & MT_TAKES_COMPLEX) != 0 || !has_complex(op, args))) {
      return abi->run(abi->self, ctx, args);
    }
  }
  if (kernel.knows < op.args_size && unknown_argument(op, kernel.knows, args) != nullptr) {
    return MT_DECLINED;
  }
  const Fit f = fit(op, *abi, slot, args);
  if (f.takes) {
    if (abi->supports != nullptr && abi->supports(abi->self, args) != nullptr) {
      return MT_DECLINED;
    }
    return abi->run(abi->self, ctx, args);
  }
  return f.convertible ? run_converted(state, slot, *abi, ctx, args) : MT_DECLINED;
}

void resolve(OpState& state, int slot) {
  const KernelList* list = state.lists[slot].load(std::memory_order_acquire);
  if (list == nullptr || list->ordered.empty()) {
    state.entry->slots[slot].store(&OpEntry::kDeclines, std::memory_order_release);
    return;
  }
  renew_winners(state, slot, *list);
  const Backend* pinned = pinned_backend(state, slot);
  const KernelEntry& first = list->ordered.front();
  const bool looked_at = anybody_observes() || restricted.load() == Kernels::kPrimitives ||
                         (tunings.load() > 0 && several_kernels(*list));
  const BoundKernel* result = &state.choice[slot];
  const Winners* winners = state.winners[slot].load();
  if (!looked_at && pinned == nullptr && winners != nullptr) {
    result = &winners->chooses;
  } else if (!looked_at && (pinned == nullptr || first.backend == pinned) &&
             !first.is_reference() && list->is_direct()) {
    result = &list->direct;
  }
  state.entry->slots[slot].store(result, std::memory_order_release);
}

void resolve_all(int slot) {
  for (OpEntry* entry : all_ops()) {
    OpState* state = entry->state.load(std::memory_order_acquire);
    if (state == nullptr) continue;
    std::lock_guard<std::mutex> lock(state->mutex);
    resolve(*state, slot);
  }
}

void resolve_all() {
  for (int slot = 0; slot < num_device_types(); ++slot) resolve_all(slot);
}

OpState& state_of(OpEntry& entry) {
  std::lock_guard<std::mutex> lock(state_mutex);
  if (entry.state.load(std::memory_order_relaxed) == nullptr) {
    auto* state = new OpState;
    state->entry = &entry;
    state->signature = std::make_unique<SignaturePlan>(*entry.info);
    for (int i = 0; i < kMaxDeviceTypes; ++i) {
      state->refs[i] = {state, i};
      state->choice[i] = {choose, &state->refs[i]};
    }
    entry.state.store(state, std::memory_order_release);
  }
  return *entry.state.load(std::memory_order_relaxed);
}

bool after_failure(const OpEntry& entry, int slot, mt_ctx* ctx, const void* args, int status,
                   const BoundKernel* ran) {
  if (status == MT_DECLINED) {
    // On the first call of a thread, retry even if the slot is unchanged: a kernel that takes only
    // contiguous operands can run once the backend of the copy_ kernel is loaded.
    thread_local bool loaded = false;
    const bool first = !std::exchange(loaded, true);
    if (first) load_default_backends();
    const BoundKernel* now = entry.slots[slot].load(std::memory_order_acquire);
    if (first || now != ran) {
      status = now->run(now->self, ctx, args);
      release_scratch(ctx);
    }
  }
  if (status == MT_OK) return true;
  if (status == MT_DECLINED) return false;
  std::string message = std::exchange(static_cast<ThreadContext*>(ctx)->error, {});
  if (message.empty()) message = absl::StrCat("the kernel failed with status ", status);
  fail_status(status, entry.info->base, message);
}

std::vector<SlowPaths> slow_paths() {
  std::vector<SlowPaths> result;
  for (OpEntry* entry : all_ops()) {
    const OpState* state = entry->state.load(std::memory_order_acquire);
    if (state == nullptr) continue;
    SlowPaths s{entry->info->name, state->conversions.load(), state->decomposed.load(),
                state->fallbacks.load()};
    if (s.conversions + s.decomposed + s.fallbacks != 0) result.push_back(s);
  }
  return result;
}

}  // namespace mytorch
