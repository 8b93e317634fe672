#include "bench/harness/probe.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "bench/harness/cost.h"
#include "core/runtime/context.h"
#include "dispatcher/choice/state.h"

namespace mytorch::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr double kLongEnough = 20e-6;  // compared with reading the clock twice

}  // namespace

struct Probe::Wrapper {
  Probe* probe;
  OpState* state;
  KernelEntry original;
};

struct Probe::Watched {
  OpEntry* entry;
  OpState* state;
  const KernelList* original;
  KernelList wrapped;
  std::vector<std::unique_ptr<Wrapper>> wrappers;
};

Probe::Probe(const std::vector<conformance::OpRecord>& catalog, int device_slot,
             const std::vector<const OpEntry*>& entries)
    : slot_(device_slot) {
  for (const conformance::OpRecord& op : catalog) records_[op.name] = &op;
  for (OpEntry* entry : all_ops()) {
    OpState* state = entry->state.load(std::memory_order_acquire);
    if (state == nullptr) continue;
    if (!entries.empty() && std::find(entries.begin(), entries.end(), entry) == entries.end()) {
      continue;
    }
    const KernelList* list = state->lists[slot_].load(std::memory_order_acquire);
    if (list == nullptr || list->ordered.empty()) continue;
    auto watched = std::make_unique<Watched>(Watched{entry, state, list, *list, {}});
    for (KernelEntry& kernel : watched->wrapped.ordered) {
      watched->wrappers.push_back(std::make_unique<Wrapper>(Wrapper{this, state, kernel}));
      if (kernel.compiled) {
        // The types of the call determine the kernel and the operands that it accepts.
        kernel.compiled = false;
        kernel.abi.flags = MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES |
                           MT_TAKES_ALIAS | MT_TAKES_COMPLEX;
      }
      kernel.abi.run = watched->wrappers.back()->original.compiled ? run_compiled : run;
      kernel.abi.self = watched->wrappers.back().get();
      if (kernel.abi.supports != nullptr) kernel.abi.supports = supports;
    }
    const mt_kernel_entry& first = watched->wrapped.ordered.front().abi;
    watched->wrapped.direct = {first.run, first.self};
    watched_.push_back(std::move(watched));
  }
}

Probe::~Probe() {
  if (watching_) end();
}

void Probe::install(Watched& watched, bool wrapped) {
  std::lock_guard<std::mutex> lock(watched.state->mutex);
  watched.state->lists[slot_].store(wrapped ? &watched.wrapped : watched.original,
                                    std::memory_order_release);
  resolve(*watched.state, slot_);
}

void Probe::begin(Mode mode) {
  mode_ = mode;
  watching_ = true;
  trace_.clear();
  seconds_ = 0;
  for (const auto& watched : watched_) {
    install(*watched, true);
    if (mode == Mode::kSkipDirect && watched->wrapped.direct.run == run) {
      watched->entry->slots[slot_].store(&watched->wrapped.direct, std::memory_order_release);
    }
  }
}

bool Probe::all_direct() const {
  return std::all_of(watched_.begin(), watched_.end(), [&](const auto& watched) {
    return watched->entry->slots[slot_].load() == &watched->wrapped.direct;
  });
}

void Probe::end() {
  watching_ = false;
  for (const auto& watched : watched_) install(*watched, false);
}

const char* Probe::supports(void* self, const void* args) {
  const auto& wrapper = *static_cast<const Wrapper*>(self);
  return wrapper.original.abi.supports(wrapper.original.abi.self, args);
}

int Probe::run_compiled(void* self, mt_ctx* ctx, const void* args) {
  const auto& wrapper = *static_cast<const Wrapper*>(self);
  const KernelEntry& original = wrapper.original;
  const CompiledKernel* kernel = static_cast<CompiledOp*>(original.abi.self)->find(args);
  if (kernel == nullptr) return MT_DECLINED;
  Wrapper found{
      wrapper.probe, wrapper.state, {original.backend, kernel->abi, false, original.knows}};
  KernelEntry wrapped = found.original;
  wrapped.abi.run = run;
  wrapped.abi.self = &found;
  if (wrapped.abi.supports != nullptr) wrapped.abi.supports = supports;
  return run_one(*wrapper.state, wrapper.probe->slot_, wrapped, ctx, args);
}

int Probe::run(void* self, mt_ctx* ctx, const void* args) {
  const auto& wrapper = *static_cast<const Wrapper*>(self);
  Probe& probe = *wrapper.probe;
  if (probe.mode_ == Mode::kSkip || probe.mode_ == Mode::kSkipDirect) return MT_OK;
  const mt_kernel_entry& kernel = wrapper.original.abi;
  const auto start = Clock::now();
  int status = kernel.run(kernel.self, ctx, args);
  const double once = seconds_since(start);
  if (status != MT_OK) return status;
  if (probe.mode_ == Mode::kTrace) {
    KernelRun seen{wrapper.state->entry, wrapper.original.backend->name,
                   kernel.name != nullptr ? kernel.name : "?"};
    const auto record = probe.records_.find(wrapper.state->entry->info->name);
    if (record != probe.records_.end()) {
      seen.flops = kernel_flops(*record->second, *wrapper.state->entry->info, args);
      seen.has_cost = record->second->cost.contains("flops");
    }
    probe.trace_.push_back(std::move(seen));
    return status;
  }
  if (once >= kLongEnough || wrapper.state->entry->info->dynamic) {
    probe.seconds_ += once;
    return status;
  }
  // Releases the kernel's scratch memory after each run, as the dispatcher does, but not the
  // caller's.
  auto* context = static_cast<ThreadContext*>(ctx);
  const size_t block = context->block, used = context->used;
  const int repeats = static_cast<int>(std::min(kLongEnough / std::max(once, 1e-9), 1000.0)) + 1;
  const auto again = Clock::now();
  for (int i = 0; i < repeats && status == MT_OK; ++i) {
    status = kernel.run(kernel.self, ctx, args);
    context->block = block;
    context->used = used;
  }
  probe.seconds_ += seconds_since(again) / repeats;
  return status;
}

}  // namespace mytorch::bench
