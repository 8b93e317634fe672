// What choice/ keeps for each operator. Lists are immutable and replaced whole, so that calls read
// them without a lock; the replaced ones are kept, because a call may still be reading them
// (backends are registered a handful of times in a process).
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "dispatcher/choice/choice.h"

namespace mytorch {

// Kernels that a backend compiled from the programs of one op, by the types of a call.
class CompiledOp {
 public:
  CompiledOp(const OpEntry* entry, const Backend* backend) : entry_(entry), backend_(backend) {}
  // The kernel for a call, compiled on first use; null when the backend declines it.
  const mt_candidate* find(const void* args);

 private:
  const OpEntry* entry_;
  const Backend* backend_;
  std::mutex mutex_;
  absl::flat_hash_map<std::vector<uint32_t>, std::unique_ptr<mt_candidate>> kernels_;
};

struct CandidateList {
  std::vector<Candidate> ordered;  // by priority; the oracle's last
  Slot direct;                     // of the first, if it takes every call
  bool all_take_alias = false;
};

struct OpState {
  OpEntry* entry;
  std::mutex mutex;
  std::atomic<const CandidateList*> lists[kMaxDeviceTypes] = {};
  Slot choice[kMaxDeviceTypes];  // {choose, &refs[i]}
  struct Ref {
    OpState* state;
    int slot;
  } refs[kMaxDeviceTypes];
  std::vector<std::unique_ptr<const CandidateList>> kept;
  std::vector<std::unique_ptr<CompiledOp>> compiled;
  std::atomic<uint64_t> conversions{0};
  std::atomic<uint64_t> dissolved{0};
  std::atomic<uint64_t> fallbacks{0};
};

// The state of an op, made on first use.
OpState& state_of(OpEntry& entry);

// Whether a candidate takes a call by its flags, and whether the host can see to it that it does.
struct Fit {
  bool takes;        // as it is
  bool convertible;  // with copies of the operands that do not fit
};
Fit fit(const OpInfo& op, const mt_candidate& candidate, int device_slot, const void* args);
// Runs a candidate on dense copies of the operands, and copies its outputs back.
int run_converted(OpState& state, int device_slot, const mt_candidate& candidate, mt_ctx* ctx,
                  const void* args);

// Which fields of the argument struct a kernel knows that was built for the schema with this hash:
// those before this offset, UINT32_MAX for the current schema, 0 for one that never was the op's.
uint32_t known_fields(const OpInfo& op, uint64_t hash);
// The first argument or output past those that the call does not leave at its default; null if the
// call says nothing that such a kernel does not know.
const char* unknown_argument(const OpInfo& op, uint32_t knows, const void* args);

// Makes a backend's kernel a candidate for calls on its device type. Kernels for other schemas than
// the op's own, present and past, are passed over.
void register_candidate(OpEntry& entry, const Backend& backend, const mt_candidate& candidate);

}  // namespace mytorch
