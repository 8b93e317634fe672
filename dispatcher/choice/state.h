// The state that choice/ keeps for each operator. Lists are immutable and replaced as a whole, so
// that calls read them without a lock. Replaced lists are never freed, because a call may still be
// reading them (backends are registered only a few times in a process).
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "dispatcher/choice/choice.h"
#include "dispatcher/choice/compiled.h"
#include "dispatcher/choice/signature.h"
#include "mytorch/backends.h"
#include "mytorch/choice.h"

namespace mytorch {

struct KernelList {
  std::vector<KernelEntry> ordered;  // by priority; the reference's last
  BoundKernel direct;                // the first kernel
  bool all_take_alias = false;

  // Whether `direct` serves every call: the kernel takes all of them, or leaves those that it does
  // not take to the choice.
  bool is_direct() const { return ordered.front().unconditional || ordered.front().compiled; }
};

// The fastest kernel for each measured kind of call: an immutable hash table.
class Winners {
 public:
  // `otherwise` runs calls that are too small for a lookup.
  Winners(size_t size, const SignaturePlan& plan_, const BoundKernel& otherwise_, OpState& state_,
          int slot_);
  void add(uint64_t signature, const KernelEntry* kernel);

  struct Entry {
    uint64_t signature = 0;
    const KernelEntry* kernel = nullptr;  // null: not measured
    BoundKernel runs;                     // the kernel if it takes every call, else ask()
  };
  const Entry& find(uint64_t signature) const {
    const Entry* e = &entries_[signature >> shift_];
    while (e->signature != signature && e->signature != 0) ++e;
    return *e;
  }

  // Copies, so that a call finds everything in one place.
  const SignaturePlan plan;
  const BoundKernel otherwise;
  OpState& state;
  const int slot;
  const BoundKernel chooses;  // {choose_measured, this}

 private:
  // Tries the winner first, then the other kernels by priority.
  struct Asked {
    const Winners& winners;
    const KernelEntry* kernel;
  };
  static int ask(void* self, mt_ctx* ctx, const void* args);

  int shift_;
  std::vector<Entry> entries_;  // the last one is empty and ends every search
  std::deque<Asked> asked_;
};

struct OpState {
  OpEntry* entry;
  std::mutex mutex;
  std::atomic<const KernelList*> lists[kMaxDeviceTypes] = {};
  // The backend pinned for this operator, which overrides the one pinned for the device type.
  std::atomic<const Backend*> pins[kMaxDeviceTypes] = {};
  std::atomic<const Winners*> winners[kMaxDeviceTypes] = {};  // null if nothing was measured
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

// Returns the state of an operator, created on first use.
OpState& state_of(OpEntry& entry);

// Publish the function that calls run now: of one operator on one device type, of all operators on
// all device types, and of all operators on one.
void resolve(OpState& state, int slot);
void resolve_all();
void resolve_all(int slot);

// Applies MYTORCH_CHOICE. Called once, when the first backend is registered.
void choose_as_environment_says();

// Settings of the process.
extern std::atomic<Kernels> restricted;
extern std::atomic<Choice> choice_mode;
extern std::atomic<int> tunings;                           // number of Tuning objects alive
extern std::atomic<const Backend*> pins[kMaxDeviceTypes];  // for operators without a pin
inline const Backend* pinned_backend(const OpState& state, int slot) {
  const Backend* own = state.pins[slot].load(std::memory_order_acquire);
  return own != nullptr ? own : pins[slot].load(std::memory_order_acquire);
}

// Runs a kernel if it takes the call, converting operands if necessary; otherwise returns
// MT_DECLINED.
int run_one(OpState& state, int slot, const KernelEntry& kernel, mt_ctx* ctx, const void* args);
// Returns the reason why a kernel does not take a call, or "" if none is known without running it.
std::string why_not(const OpInfo& op, const KernelEntry& kernel, int slot, const void* args);
// Returns the name of a kernel in the table of measurements: "cpu-openmp 1.0/packed_gemm".
std::string kernel_id(const KernelEntry& kernel);
// Returns the name of a device type in the table of measurements: "cpu", or the name and the model.
std::string device_label(int slot);
// Seconds of the clock that times kernels. Tests set one that their kernels move.
extern double (*tuning_clock)();
// Measures a call with each kernel, adds the result to the table, and updates the operator's
// winners.
void tune(OpState& state, int slot, mt_ctx* ctx, const void* args, uint64_t signature);

// Whether a kernel takes every call of the operator without conversion, apart from complex operands
// and outputs that are inputs.
bool takes_every_call(const OpInfo& op, const mt_kernel_entry& kernel);
// Whether the flags of a kernel accept a call.
struct Fit {
  bool takes;        // without conversion
  bool convertible;  // with conversion of operands
};
Fit fit(const OpInfo& op, const mt_kernel_entry& kernel, int device_slot, const void* args);
// Runs a kernel on converted operands and copies its outputs back.
int run_converted(OpState& state, int device_slot, const mt_kernel_entry& kernel, mt_ctx* ctx,
                  const void* args);

// Returns the offset up to which a kernel built for the schema with this hash knows the argument
// struct: UINT32_MAX for the current schema, 0 for a hash that the operator never had.
uint32_t known_fields(const OpInfo& op, uint64_t hash);
// Returns the first argument or output beyond `knows` that the call does not leave at its default,
// or null if the kernel can take the call.
const char* unknown_argument(const OpInfo& op, uint32_t knows, const void* args);

// Registers a backend's kernel for calls on its device type. Ignores kernels for schemas that the
// operator never had.
void register_kernel(OpEntry& entry, const Backend& backend, const mt_kernel_entry& kernel);

}  // namespace mytorch
