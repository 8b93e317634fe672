// Seeing the calls of kernels as they are made: for `explain`, for timing kernels alone, and for
// tests.
#pragma once

#include <functional>

#include "dispatcher/table/op.h"

namespace mytorch {

struct KernelCall {
  OpEntry* entry;
  int slot;  // of the device type
  mt_ctx* ctx;
  const void* args;  // the op's argument struct; what it points to lives as long as the call
};

// While it lives, `seen` is called for each kernel call of this thread, before it runs. Every op on
// any thread goes through the choice meanwhile, so calls are slower.
class Observe {
 public:
  explicit Observe(std::function<void(const KernelCall&)> seen);
  ~Observe();
  Observe(const Observe&) = delete;
  Observe& operator=(const Observe&) = delete;

 private:
  friend bool observed(const KernelCall& call);
  std::function<void(const KernelCall&)> seen_;
  Observe* outer_;
};

// Whether anybody observes; then the thread's observers were told. For choose().
bool anybody_observes();
bool observed(const KernelCall& call);

}  // namespace mytorch
