// Seeing the calls of kernels as they are made: for `explain`, the profiler, for timing kernels
// alone, and for tests. Every op on any thread goes through the choice while anybody looks, so
// calls are slower then; nobody looking costs nothing.
#pragma once

#include <functional>

#include "dispatcher/table/op.h"

namespace mytorch {

struct KernelEntry;
struct TensorImpl;

struct KernelCall {
  OpEntry* entry;
  int slot;  // of the device type
  mt_ctx* ctx;
  const void* args;  // the op's argument struct; what it points to lives as long as the call
};

// What became of it.
struct KernelRan {
  int status;                 // or one of the two below
  const KernelEntry* kernel;  // null where none took the call
};
// Instead of a kernel that is missing: the ops that the call consists of ran, or the CPU.
constexpr int kDecomposed = -1;
constexpr int kFellBack = -2;

// While it lives, `seen` is called for each kernel call of this thread, before it runs.
class Observe {
 public:
  explicit Observe(std::function<void(const KernelCall&)> seen);
  ~Observe();
  Observe(const Observe&) = delete;
  Observe& operator=(const Observe&) = delete;

 private:
  friend void tell_observers(const KernelCall& call);
  std::function<void(const KernelCall&)> seen_;
  Observe* outer_;
};

// Sees the calls of all threads, from whichever makes them. It lives for good: calls may be under
// way when it is told to look away. A call that no kernel took is told, and then once more as the
// detour that was made for it, with the calls that this led to inside.
class Watcher {
 public:
  virtual void before(const KernelCall& call) noexcept = 0;
  // Also after a call that threw (MT_ERROR_INTERNAL).
  virtual void after(const KernelCall& call, const KernelRan& ran) noexcept = 0;

 protected:
  ~Watcher() = default;
};
// null: nobody watches.
void set_watcher(Watcher* watcher);

// While it lives, what runs is in place of a kernel of the op on that device.
class Substitution {
 public:
  Substitution(const KernelCall& call, int how);  // kDecomposed, kFellBack
  // A call decomposes whose result is `out`, or lies beside it.
  Substitution(const OpEntry& entry, const TensorImpl* out, const void* args);
  ~Substitution();
  Substitution(const Substitution&) = delete;
  Substitution& operator=(const Substitution&) = delete;

 private:
  KernelCall call_;
  int how_;
  Watcher* watching_;
};

// For choose(): whether anybody looks; then tell_observers() comes before the call, and the
// watcher, if there is one, is told before and after it.
bool anybody_observes();
void tell_observers(const KernelCall& call);
Watcher* watcher();

}  // namespace mytorch
