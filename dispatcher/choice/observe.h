// Observation of kernel calls, for `explain`, the profiler, the timing of single kernels, and
// tests. While anything observes, every call on every thread takes the slow path through the
// choice; otherwise observation costs nothing.
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
  const void* args;  // the operator's argument struct; valid during the call
};

// The outcome of a call.
struct KernelRan {
  int status;                 // a status, or one of the two values below
  const KernelEntry* kernel;  // null if no kernel took the call
};
// The substitution of a missing kernel: the call decomposed, or ran on the CPU.
constexpr int kDecomposed = -1;
constexpr int kFellBack = -2;

// Calls `seen` before each kernel call of this thread, and `ran`, if given, after it, for the
// lifetime of this object. `ran` must not throw.
class Observe {
 public:
  using Seen = std::function<void(const KernelCall&)>;
  using Ran = std::function<void(const KernelCall&, const KernelRan&)>;
  explicit Observe(Seen seen, Ran ran = nullptr);
  ~Observe();
  Observe(const Observe&) = delete;
  Observe& operator=(const Observe&) = delete;

 private:
  friend class Observed;
  Seen seen_;
  Ran ran_;
  Observe* outer_;
};

// Observes the calls of all threads, on the calling thread. Must never be destroyed: calls may be
// in progress when it is removed. A call that no kernel takes is reported once as declined, and
// again as a Substitution, which contains the calls made inside it.
class Watcher {
 public:
  virtual void before(const KernelCall& call) noexcept = 0;
  // Also called after a call that threw, with MT_ERROR_INTERNAL.
  virtual void after(const KernelCall& call, const KernelRan& ran) noexcept = 0;

 protected:
  ~Watcher() = default;
};
// Installs the watcher of the process; null removes it.
void set_watcher(Watcher* watcher);

// Reports the execution of a call in place of a missing kernel, for the lifetime of this object.
class Substitution {
 public:
  Substitution(const KernelCall& call, int how);  // kDecomposed or kFellBack
  // Reports the decomposition of a call; `out` is any of its results.
  Substitution(const OpEntry& entry, const TensorImpl* out, const void* args);
  ~Substitution();
  Substitution(const Substitution&) = delete;
  Substitution& operator=(const Substitution&) = delete;

 private:
  KernelCall call_;
  int how_;
  Watcher* watching_;
};

// For choose(): whether anything observes. If so, choose() runs the call in the scope of an
// Observed, and calls the watcher, if any, before and after it.
bool anybody_observes();
Watcher* watcher();

// Tells the thread's observer of a call, at its begin and, if it has set `ran`, at its end.
class Observed {
 public:
  explicit Observed(const KernelCall& call);
  ~Observed();
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

  KernelRan ran;

 private:
  const KernelCall& call_;
  Observe* observer_;
};

}  // namespace mytorch
