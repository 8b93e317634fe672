// The autocast state of a thread.
#pragma once

#include <cstdint>

#include "mytorch/dtype.h"
#include "mytorch/thread_state.h"

namespace mytorch::autocast {

// What an operator does with its operands. mytorch/autocast.h explains the policies.
enum class Policy : uint8_t { kNone, kLower, kFloat32, kWidest };
inline constexpr int kNumPolicies = 4;

// The state of a thread.
struct AutocastState {
  // The types that a policy may cast on the devices of a slot, as bits; 0 if autocast is disabled
  // there.
  uint16_t types_cast(Policy policy, int slot) const {
    return casts[static_cast<int>(policy)][slot];
  }
  bool enabled(int slot) const { return types_cast(Policy::kFloat32, slot) != 0; }
  bool enabled() const {
    uint16_t any = 0;
    for (uint16_t types : casts[static_cast<int>(Policy::kFloat32)]) any |= types;
    return any != 0;
  }

  uint16_t casts[kNumPolicies][kMaxDeviceTypes] = {};
  ScalarType dtype[kMaxDeviceTypes] = {};  // of kLower; kBool: not chosen yet
  bool cache_enabled = true;
};

extern thread_local constinit AutocastState state __attribute__((tls_model("initial-exec")));

}  // namespace mytorch::autocast

namespace mytorch {

// Saves the state of this thread and restores it at the end of the scope. The outermost scope of a
// thread drops the kept casts.
class AutocastScope {
 public:
  AutocastScope();
  // Continues in another state: that of a forward, or the default, which casts nothing.
  explicit AutocastScope(const autocast::AutocastState& state);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  autocast::AutocastState saved_;
};

}  // namespace mytorch
