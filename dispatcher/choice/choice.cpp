#include "dispatcher/choice/choice.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/choice/state.h"
#include "dispatcher/frame/dissolve.h"
#include "mytorch/backends.h"

namespace mytorch {
namespace {

int decline(void*, mt_ctx*, const void*) { return MT_DECLINED; }

struct Backends {
  std::mutex mutex;
  std::vector<std::unique_ptr<Backend>> all;
};
Backends& all_backends() {
  static Backends* const instance = new Backends;
  return *instance;
}

// The pinned backend of each device type, for all threads.
std::atomic<const Backend*> pins[kMaxDeviceTypes];

std::atomic<Kernels> restricted{Kernels::kAll};

bool is_oracle(const Candidate& candidate) {
  return (candidate.backend->abi.flags & MT_BACKEND_ORACLE) != 0;
}

uint32_t needed_flags(const OpInfo& op) {
  return op.meaning == Meaning::kPointwise
             ? MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS
         : op.meaning == Meaning::kReduce ? MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES
                                          : uint32_t{MT_TAKES_STRIDED};
}

bool unconditional(const OpInfo& op, const Candidate& candidate) {
  return candidate.abi.supports == nullptr && !candidate.compiled &&
         candidate.knows >= op.args_size &&
         (candidate.abi.flags & needed_flags(op)) == needed_flags(op);
}

int run_one(OpState& state, int slot, const Candidate& candidate, mt_ctx* ctx, const void* args) {
  const OpInfo& op = *state.entry->info;
  const mt_candidate* kernel = &candidate.abi;
  if (candidate.compiled) {
    kernel = static_cast<CompiledOp*>(candidate.abi.self)->find(args);
    if (kernel == nullptr) return MT_DECLINED;
  }
  if (candidate.knows < op.args_size && unknown_argument(op, candidate.knows, args) != nullptr) {
    return MT_DECLINED;
  }
  const Fit f = fit(op, *kernel, slot, args);
  if (f.takes) {
    if (kernel->supports != nullptr && kernel->supports(kernel->self, args) != nullptr) {
      return MT_DECLINED;
    }
    return kernel->run(kernel->self, ctx, args);
  }
  return f.convertible ? run_converted(state, slot, *kernel, ctx, args) : MT_DECLINED;
}

// Whether the ops that a call consists of are to run instead of a kernel. Copies stay: conversions,
// also of the operands of other kernels, rest on them.
bool must_dissolve(const OpInfo& op, const void* args) {
  if (op.meaning == Meaning::kComposite) return std::strcmp(op.name, "copy_") != 0;
  return can_dissolve(op, args);
}

// The slot of an op with several or conditional candidates.
int choose(void* self, mt_ctx* ctx, const void* args) {
  auto* ref = static_cast<OpState::Ref*>(self);
  OpState& state = *ref->state;
  const Kernels allowed = restricted.load(std::memory_order_relaxed);
  if (allowed == Kernels::kPrimitives && must_dissolve(*state.entry->info, args)) {
    return MT_DECLINED;
  }
  const CandidateList* list = state.lists[ref->slot].load(std::memory_order_acquire);
  const Backend* pinned = pins[ref->slot].load(std::memory_order_acquire);
  if (pinned != nullptr) {
    for (const Candidate& candidate : list->ordered) {
      if (candidate.backend != pinned) continue;
      const int status = run_one(state, ref->slot, candidate, ctx, args);
      if (status != MT_DECLINED) return status;
    }
  }
  if (allowed == Kernels::kPreferred) return MT_DECLINED;
  for (const Candidate& candidate : list->ordered) {
    if (candidate.backend == pinned || is_oracle(candidate)) continue;
    const int status = run_one(state, ref->slot, candidate, ctx, args);
    if (status != MT_DECLINED) return status;
  }
  return MT_DECLINED;
}

std::mutex state_mutex;

// Publishes what a call on this device type runs now.
void resolve(OpState& state, int slot) {
  const CandidateList* list = state.lists[slot].load(std::memory_order_acquire);
  const Slot* result = &OpEntry::kDeclines;
  if (list != nullptr && !list->ordered.empty()) {
    const Backend* pinned = pins[slot].load(std::memory_order_acquire);
    const Candidate& first = list->ordered.front();
    const bool plain =
        (pinned == nullptr || first.backend == pinned) && restricted.load() != Kernels::kPrimitives;
    result = plain && !is_oracle(first) && unconditional(*state.entry->info, first)
                 ? &list->direct
                 : &state.choice[slot];
  }
  state.entry->slots[slot].store(result, std::memory_order_release);
}

void add_candidate(OpEntry& entry, const Candidate& candidate) {
  const int slot = candidate.backend->device_slot;
  OpState& state = state_of(entry);
  std::lock_guard<std::mutex> lock(state.mutex);
  const CandidateList* old = state.lists[slot].load();
  auto list = std::make_unique<CandidateList>();
  if (old != nullptr) list->ordered = old->ordered;
  list->ordered.push_back(candidate);
  std::stable_sort(list->ordered.begin(), list->ordered.end(),
                   [](const Candidate& a, const Candidate& b) {
                     if (is_oracle(a) != is_oracle(b)) return is_oracle(b);
                     return a.abi.priority > b.abi.priority;
                   });
  list->direct = {list->ordered.front().abi.run, list->ordered.front().abi.self};
  list->all_take_alias = std::all_of(
      list->ordered.begin(), list->ordered.end(),
      [](const Candidate& c) { return c.compiled || (c.abi.flags & MT_TAKES_ALIAS) != 0; });
  state.lists[slot].store(list.get(), std::memory_order_release);
  state.kept.push_back(std::move(list));
  resolve(state, slot);
}

template <class T>
T copy_sized(const T* from) {
  T to{};
  std::memcpy(&to, from, std::min(from->size, sizeof(T)));
  to.size = sizeof(T);
  return to;
}

// What the backend's structs begin with. Version 1's are the smallest there are.
void check_contract(const mt_backend& abi, const std::string& path) {
  const std::string where = path.empty() ? "a registered backend" : path;
  if (abi.abi_major != MT_ABI_MAJOR) {
    fail(ErrorCode::kUnsupported, "[backend] ", where, " speaks contract version ", abi.abi_major,
         ", this mytorch speaks ", MT_ABI_MAJOR, ": rebuild one of them");
  }
  if (abi.name == nullptr || abi.device_type == nullptr) {
    fail(ErrorCode::kValue, "[backend] ", where, " did not set its name and device_type");
  }
  if (abi.num_candidates != 0 && abi.candidates == nullptr) {
    fail(ErrorCode::kValue, "[backend] ", where, " has ", abi.num_candidates,
         " candidates but no table of them");
  }
  if (abi.num_candidates != 0 && abi.candidates->size < sizeof(mt_candidate)) {
    fail(ErrorCode::kValue, "[backend] ", where, " has candidates of ", abi.candidates->size,
         " bytes, fewer than any version of the contract: set mt_candidate::size in each");
  }
}

// The backends that MYTORCH_PREFER names, which are pinned as soon as they are there.
bool named_by_environment(const std::string& backend) {
  const char* list = std::getenv("MYTORCH_PREFER");
  if (list == nullptr) return false;
  const std::string padded = absl::StrCat(",", list, ",");
  return padded.find(absl::StrCat(",", backend, ",")) != std::string::npos;
}

void pin(int slot, const Backend* backend) {
  pins[slot].store(backend);
  for (OpEntry* entry : all_ops()) {
    if (OpState* state = entry->state.load(std::memory_order_acquire)) resolve(*state, slot);
  }
}

}  // namespace

const Slot OpEntry::kDeclines = {decline, nullptr};

OpState& state_of(OpEntry& entry) {
  std::lock_guard<std::mutex> lock(state_mutex);
  if (entry.state.load(std::memory_order_relaxed) == nullptr) {
    auto* state = new OpState;
    state->entry = &entry;
    for (int i = 0; i < kMaxDeviceTypes; ++i) {
      state->refs[i] = {state, i};
      state->choice[i] = {choose, &state->refs[i]};
    }
    entry.state.store(state, std::memory_order_release);
  }
  return *entry.state.load(std::memory_order_relaxed);
}

const Backend& add_backend(const mt_backend& given, const std::string& path) {
  check_contract(given, path);
  auto backend = std::make_unique<Backend>();
  backend->abi = given;
  backend->name = given.name;
  backend->version = given.version != nullptr ? given.version : "";
  backend->path = path;
  Backends& b = all_backends();
  {
    std::lock_guard<std::mutex> lock(b.mutex);
    for (const auto& known : b.all) {
      if (known->name == backend->name) {
        fail(ErrorCode::kValue, "[backend] ", path.empty() ? "a registered backend" : path,
             " is called '", backend->name, "', and a backend of that name is there already",
             known->path.empty() ? "" : ", from ", known->path);
      }
    }
  }
  backend->device_slot = register_device_type(given.device_type, given.device, given.self);
  const Backend* kept = backend.get();
  {
    std::lock_guard<std::mutex> lock(b.mutex);
    b.all.push_back(std::move(backend));
  }
  for (int64_t i = 0; i < given.num_candidates; ++i) {
    // Candidates are laid out with the backend's own size, which may differ from ours.
    const auto* first = reinterpret_cast<const char*>(given.candidates);
    const size_t step = given.candidates->size;
    const mt_candidate abi = copy_sized(reinterpret_cast<const mt_candidate*>(first + i * step));
    // An op that this mytorch does not have is no error: the plug-in may be newer.
    OpEntry* entry = abi.op != nullptr ? find_op(abi.op) : nullptr;
    if (entry != nullptr) register_candidate(*entry, *kept, abi);
  }
  if (kept->abi.compile != nullptr) {
    for (OpEntry* entry : all_ops()) {
      if (entry->info->num_programs == 0) continue;
      OpState& state = state_of(*entry);
      auto compiled = std::make_unique<CompiledOp>(entry, kept);
      mt_candidate abi{};
      abi.size = sizeof(abi);
      abi.op = entry->info->name;
      abi.hash = entry->info->hash;
      abi.name = "compiled";
      abi.priority = kept->abi.compile_priority;
      abi.flags = MT_TAKES_ALIAS;
      abi.self = compiled.get();
      {
        std::lock_guard<std::mutex> lock(state.mutex);
        state.compiled.push_back(std::move(compiled));
      }
      add_candidate(*entry, {kept, abi, true});
    }
  }
  if (named_by_environment(kept->name)) pin(kept->device_slot, kept);
  return *kept;
}

void register_candidate(OpEntry& entry, const Backend& backend, const mt_candidate& candidate) {
  const uint32_t knows = known_fields(*entry.info, candidate.hash);
  if (candidate.run == nullptr || knows == 0) return;
  add_candidate(entry, {&backend, candidate, false, knows});
}

std::vector<const Backend*> backends() {
  Backends& b = all_backends();
  std::lock_guard<std::mutex> lock(b.mutex);
  std::vector<const Backend*> result;
  for (const auto& backend : b.all) result.push_back(backend.get());
  return result;
}

std::vector<Candidate> candidates(const OpEntry& entry, int device_slot) {
  const OpState* state = entry.state.load(std::memory_order_acquire);
  if (state == nullptr) return {};
  const CandidateList* list = state->lists[device_slot].load(std::memory_order_acquire);
  return list != nullptr ? list->ordered : std::vector<Candidate>{};
}

bool takes_alias(const OpEntry& entry, int device_slot) {
  const OpState* state = entry.state.load(std::memory_order_acquire);
  if (state == nullptr) return false;
  const CandidateList* list = state->lists[device_slot].load(std::memory_order_acquire);
  return list != nullptr && list->all_take_alias;
}

Prefer::Prefer(const std::string& device_type, const std::string& backend)
    : slot_(mytorch::device_slot(device_type_from_name(device_type))) {
  load_default_backends();
  const Backend* found = nullptr;
  std::vector<std::string> names;
  for (const Backend* known : backends()) {
    if (known->device_slot != slot_) continue;
    names.push_back(known->name);
    if (known->name == backend) found = known;
  }
  if (found == nullptr) {
    fail(ErrorCode::kValue, "[prefer] no backend '", backend, "' serves ", device_type,
         "; loaded are: ", absl::StrJoin(names, ", "));
  }
  saved_ = pins[slot_].load();
  pin(slot_, found);
}

Prefer::~Prefer() { pin(slot_, static_cast<const Backend*>(saved_)); }

namespace {
void restrict_kernels(Kernels kernels) {
  restricted.store(kernels);
  for (OpEntry* entry : all_ops()) {
    OpState* state = entry->state.load(std::memory_order_acquire);
    if (state == nullptr) continue;
    for (int slot = 0; slot < kMaxDeviceTypes; ++slot) resolve(*state, slot);
  }
}
}  // namespace

RestrictKernels::RestrictKernels(Kernels kernels) : saved_(restricted.load()) {
  load_default_backends();
  restrict_kernels(kernels);
}

RestrictKernels::~RestrictKernels() { restrict_kernels(saved_); }

bool after_failure(const OpEntry& entry, int slot, mt_ctx* ctx, const void* args, int status,
                   const Slot* ran) {
  if (status == MT_DECLINED) {
    load_default_backends();
    const Slot* now = entry.slots[slot].load(std::memory_order_acquire);
    if (now != ran) {
      status = now->run(now->self, ctx, args);
      release_scratch(ctx);
    }
  }
  if (status == MT_OK) return true;
  if (status == MT_DECLINED) return false;
  std::string message = std::exchange(static_cast<Context*>(ctx)->error, {});
  if (message.empty()) message = absl::StrCat("the kernel failed with status ", status);
  if (message[0] != '[') message = absl::StrCat("[", entry.info->base, "] ", message);
  if (status < MT_ERROR_SHAPE || status > MT_ERROR_INTERNAL) status = MT_ERROR_INTERNAL;
  throw Error(static_cast<ErrorCode>(status), message);
}

std::vector<SlowPaths> slow_paths() {
  std::vector<SlowPaths> result;
  for (OpEntry* entry : all_ops()) {
    const OpState* state = entry->state.load(std::memory_order_acquire);
    if (state == nullptr) continue;
    SlowPaths s{entry->info->name, state->conversions.load(), state->dissolved.load(),
                state->fallbacks.load()};
    if (s.conversions + s.dissolved + s.fallbacks != 0) result.push_back(s);
  }
  return result;
}

}  // namespace mytorch
