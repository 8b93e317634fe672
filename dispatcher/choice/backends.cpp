// The backends of the process and the kernels that they register.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/choice/pins.h"
#include "dispatcher/choice/state.h"

namespace mytorch {
namespace {

struct Backends {
  std::mutex mutex;
  std::vector<std::unique_ptr<Backend>> all;
};
Backends& all_backends() {
  static Backends* const instance = new Backends;
  return *instance;
}

uint32_t needed_flags(const OpInfo& op) {
  return op.meaning == Meaning::kPointwise
             ? MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS
         : op.meaning == Meaning::kReduce ? MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES
                                          : uint32_t{MT_TAKES_STRIDED};
}

void add_kernel(OpEntry& entry, KernelEntry kernel) {
  kernel.unconditional = !kernel.compiled && kernel.knows >= entry.info->args_size &&
                         takes_every_call(*entry.info, kernel.abi);
  const int slot = kernel.backend->device_slot;
  OpState& state = state_of(entry);
  std::lock_guard<std::mutex> lock(state.mutex);
  const KernelList* old = state.lists[slot].load();
  auto list = std::make_unique<KernelList>();
  if (old != nullptr) list->ordered = old->ordered;
  const auto precedes = [](const KernelEntry& a, const KernelEntry& b) {
    if (a.is_reference() != b.is_reference()) return b.is_reference();
    return a.abi.priority > b.abi.priority;
  };
  list->ordered.insert(
      std::upper_bound(list->ordered.begin(), list->ordered.end(), kernel, precedes), kernel);
  list->direct = {list->ordered.front().abi.run, list->ordered.front().abi.self};
  list->all_take_alias = std::all_of(
      list->ordered.begin(), list->ordered.end(),
      [](const KernelEntry& k) { return k.compiled || (k.abi.flags & MT_TAKES_ALIAS) != 0; });
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

// Checks the fields that every version of the contract has. The structs of version 1.0 are the
// smallest.
void check_contract(const mt_backend& abi, const std::string& path) {
  const std::string where = path.empty() ? "a registered backend" : path;
  if (abi.abi_major != MT_ABI_MAJOR) {
    fail(ErrorCode::kUnsupported, "[backend] ", where, " implements contract version ",
         abi.abi_major, ", this mytorch implements ", MT_ABI_MAJOR, ": rebuild one of them");
  }
  if (abi.name == nullptr || abi.device_type == nullptr) {
    fail(ErrorCode::kValue, "[backend] ", where, " did not set its name and device_type");
  }
  if (abi.num_kernels != 0 && abi.kernels == nullptr) {
    fail(ErrorCode::kValue, "[backend] ", where, " has ", abi.num_kernels,
         " kernels but no table of them");
  }
  if (abi.num_kernels != 0 && abi.kernels->size < sizeof(mt_kernel_entry)) {
    fail(ErrorCode::kValue, "[backend] ", where, " has kernels of ", abi.kernels->size,
         " bytes, fewer than in any version of the contract: set mt_kernel_entry::size in each");
  }
}

}  // namespace

std::unique_ptr<Backend> checked_backend(const mt_backend& given, const std::string& path) {
  check_contract(given, path);
  auto backend = std::make_unique<Backend>();
  backend->abi = given;
  backend->name = given.name;
  backend->version = given.version != nullptr ? given.version : "";
  backend->path = path;
  for (const Backend* known : backends()) {
    if (known->name != backend->name) continue;
    fail(ErrorCode::kValue, "[backend] ", path.empty() ? "a registered backend" : path,
         " is named '", backend->name, "', and a backend of that name is already loaded",
         known->path.empty() ? "" : ", from ", known->path);
  }
  return backend;
}

void add_backend(std::unique_ptr<Backend> backend) {
  static const bool once = (choose_as_environment_says(), true);
  (void)once;
  const mt_backend& given = backend->abi;
  backend->device_slot = register_device_type(given.device_type, given.device, given.self);
  const Backend* kept = backend.get();
  Backends& b = all_backends();
  {
    std::lock_guard<std::mutex> lock(b.mutex);
    b.all.push_back(std::move(backend));
  }
  for (int64_t i = 0; i < given.num_kernels; ++i) {
    // Kernels are laid out with the backend's struct size, which may differ from ours.
    const auto* first = reinterpret_cast<const char*>(given.kernels);
    const size_t step = given.kernels->size;
    mt_kernel_entry abi = copy_sized(reinterpret_cast<const mt_kernel_entry*>(first + i * step));
    // Skip unknown operators: the backend may be newer than this mytorch.
    OpEntry* entry = abi.op != nullptr ? find_op(abi.op) : nullptr;
    if (entry == nullptr) continue;
    if (abi.hash == 0 && entry->info->custom != nullptr) abi.hash = entry->info->hash;
    register_kernel(*entry, *kept, abi);
  }
  if (kept->abi.compile != nullptr) {
    for (OpEntry* entry : all_ops()) {
      if (entry->info->num_programs == 0) continue;
      OpState& state = state_of(*entry);
      auto compiled = std::make_unique<CompiledOp>(*entry, *kept, state.choice[kept->device_slot]);
      mt_kernel_entry abi{};
      abi.size = sizeof(abi);
      abi.op = entry->info->name;
      abi.hash = entry->info->hash;
      abi.name = "compiled";
      abi.priority = kept->abi.compile_priority;
      abi.flags = MT_TAKES_ALIAS;
      abi.run = &CompiledOp::run;
      abi.self = compiled.get();
      {
        std::lock_guard<std::mutex> lock(state.mutex);
        state.compiled.push_back(std::move(compiled));
      }
      add_kernel(*entry, {kept, abi, true});
    }
  }
  pin_from_environment(*kept);
}

bool takes_every_call(const OpInfo& op, const mt_kernel_entry& kernel) {
  const uint32_t needed = needed_flags(op);
  return kernel.supports == nullptr && (kernel.flags & needed) == needed;
}

void register_kernel(OpEntry& entry, const Backend& backend, const mt_kernel_entry& kernel) {
  const uint32_t knows = known_fields(*entry.info, kernel.hash);
  if (kernel.run == nullptr || knows == 0) return;
  add_kernel(entry, {&backend, kernel, false, knows});
}

std::vector<const Backend*> backends() {
  Backends& b = all_backends();
  std::lock_guard<std::mutex> lock(b.mutex);
  std::vector<const Backend*> result;
  for (const auto& backend : b.all) result.push_back(backend.get());
  return result;
}

std::vector<KernelEntry> kernels(const OpEntry& entry, int device_slot) {
  const OpState* state = entry.state.load(std::memory_order_acquire);
  if (state == nullptr) return {};
  const KernelList* list = state->lists[device_slot].load(std::memory_order_acquire);
  return list != nullptr ? list->ordered : std::vector<KernelEntry>{};
}

bool takes_alias(const OpEntry& entry, int device_slot) {
  const OpState* state = entry.state.load(std::memory_order_acquire);
  if (state == nullptr) return false;
  const KernelList* list = state->lists[device_slot].load(std::memory_order_acquire);
  return list != nullptr && list->all_take_alias;
}

}  // namespace mytorch
