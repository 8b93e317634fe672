// What choice/ keeps for each operator. Lists are immutable and replaced whole, so that calls read
// them without a lock; the replaced ones are kept, because a call may still be reading them
// (backends are registered a handful of times in a process).
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/choice/signature.h"
#include "mytorch/backends.h"
#include "mytorch/choice.h"

namespace mytorch {

// Kernels that a backend compiled from the programs of one op, by the types of a call.
class CompiledOp {
 public:
  CompiledOp(const OpEntry* entry, const Backend* backend) : entry_(entry), backend_(backend) {}
  // The kernel for a call, compiled on first use; null when the backend declines it.
  const mt_kernel_entry* find(const void* args);

 private:
  const OpEntry* entry_;
  const Backend* backend_;
  std::mutex mutex_;
  absl::flat_hash_map<std::vector<uint32_t>, std::unique_ptr<mt_kernel_entry>> kernels_;
};

struct KernelList {
  std::vector<KernelEntry> ordered;  // by priority; the reference's last
  BoundKernel direct;                // of the first, if it takes every call
  bool all_take_alias = false;
};

// The fastest kernel for each kind of call that was measured: a hash table that never changes.
class Winners {
 public:
  // `otherwise`: what runs a call that is too small to be looked up.
  Winners(size_t size, const SignaturePlan& plan_, const BoundKernel& otherwise_, OpState& state_,
          int slot_);
  void add(uint64_t signature, const KernelEntry* kernel);

  struct Entry {
    uint64_t signature = 0;
    const KernelEntry* kernel = nullptr;  // null: such calls were not measured
    BoundKernel runs;                     // it where it takes the call, else the others
  };
  const Entry& find(uint64_t signature) const {
    const Entry* e = &entries_[signature >> shift_];
    while (e->signature != signature && e->signature != 0) ++e;
    return *e;
  }

  // Copies, so that a call finds all in one place.
  const SignaturePlan plan;
  const BoundKernel otherwise;
  OpState& state;
  const int slot;
  const BoundKernel chooses;  // {choose_measured, this}

 private:
  // The winner is asked first, then the others by priority.
  struct Asked {
    const Winners& winners;
    const KernelEntry* kernel;
  };
  static int ask(void* self, mt_ctx* ctx, const void* args);

  int shift_;
  std::vector<Entry>
      entries_;  // an empty one comes last: what is not found ends there at the latest
  std::deque<Asked> asked_;
};

struct OpState {
  OpEntry* entry;
  std::mutex mutex;
  std::atomic<const KernelList*> lists[kMaxDeviceTypes] = {};
  // The backend that is asked first for this op, rather than for all of its device type.
  std::atomic<const Backend*> pins[kMaxDeviceTypes] = {};
  std::atomic<const Winners*> winners[kMaxDeviceTypes] = {};  // null where nothing was measured
  std::unique_ptr<const SignaturePlan> signature;
  BoundKernel choice[kMaxDeviceTypes];  // {choose, &refs[i]}
  struct Ref {
    OpState* state;
    int slot;
  } refs[kMaxDeviceTypes];
  std::vector<std::unique_ptr<const KernelList>> kept;
  std::vector<std::unique_ptr<const Winners>> kept_winners;
  std::vector<std::unique_ptr<CompiledOp>> compiled;
  std::atomic<uint64_t> conversions{0};
  std::atomic<uint64_t> decomposed{0};
  std::atomic<uint64_t> fallbacks{0};
};

// The state of an op, made on first use.
OpState& state_of(OpEntry& entry);

// Publishes what calls of an op on a device type run now; all ops', on all.
void resolve(OpState& state, int slot);
void resolve_all();
void resolve_all(int slot);

// Once, when the first backend is registered: MYTORCH_CHOICE.
void choose_as_environment_says();

// The process's settings.
extern std::atomic<Kernels> restricted;
extern std::atomic<Choice> choice_mode;
extern std::atomic<int> tunings;                           // that are alive
extern std::atomic<const Backend*> pins[kMaxDeviceTypes];  // for all ops without one of their own
inline const Backend* pinned_backend(const OpState& state, int slot) {
  const Backend* own = state.pins[slot].load(std::memory_order_acquire);
  return own != nullptr ? own : pins[slot].load(std::memory_order_acquire);
}

// Runs a kernel if it takes the call, with copies where the host can make it so; else
// MT_DECLINED.
int run_one(OpState& state, int slot, const KernelEntry& kernel, mt_ctx* ctx, const void* args);
// Why it does not take a call; "" where it does, as far as can be said without running it.
std::string why_not(const OpInfo& op, const KernelEntry& kernel, int slot, const void* args);
// The name of a kernel in the table of measurements: "cpu-openmp 1.0/packed_gemm".
std::string kernel_id(const KernelEntry& kernel);
// The device types of measurements: "cpu", or with their model.
std::string device_label(int slot);
// Measures a call of several kernels for the table, and renews the op's winners.
void tune(OpState& state, int slot, mt_ctx* ctx, const void* args, uint64_t signature);

// Whether a kernel takes a call by its flags, and whether the host can see to it that it does.
struct Fit {
  bool takes;        // as it is
  bool convertible;  // with copies of the operands that do not fit
};
Fit fit(const OpInfo& op, const mt_kernel_entry& kernel, int device_slot, const void* args);
// Runs a kernel on contiguous copies of the operands, and copies its outputs back.
int run_converted(OpState& state, int device_slot, const mt_kernel_entry& kernel, mt_ctx* ctx,
                  const void* args);

// Which fields of the argument struct a kernel knows that was built for the schema with this hash:
// those before this offset, UINT32_MAX for the current schema, 0 for one that never was the op's.
uint32_t known_fields(const OpInfo& op, uint64_t hash);
// The first argument or output past those that the call does not leave at its default; null if the
// call says nothing that such a kernel does not know.
const char* unknown_argument(const OpInfo& op, uint32_t knows, const void* args);

// Makes a backend's kernel a kernel for calls on its device type. Kernels for other schemas than
// the op's own, present and past, are passed over.
void register_kernel(OpEntry& entry, const Backend& backend, const mt_kernel_entry& kernel);

}  // namespace mytorch
