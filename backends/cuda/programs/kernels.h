// Compiled kernels by key, and their launch.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "backends/cuda/programs/key.h"
#include "backends/cuda/programs/params.h"
#include "backends/cuda/programs/program.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi.h"

struct CUfunc_st;

namespace mytorch::cuda {

using Function = CUfunc_st*;

// Returns the function "kernel" of a text, compiled and loaded for a device. It is never unloaded.
Function load_function(const std::string& text, int32_t device);

// Returns how many blocks of `threads` threads a multiprocessor holds at once. Asks the driver once
// for each function.
int resident_blocks(Function function, int64_t threads);

// The kernels of one program. Lookups take no lock: entries are only ever added, at the front of a
// list.
class KernelTable {
 public:
  KernelTable() = default;
  KernelTable(const KernelTable&) = delete;

  Function find(const Key& key) const {
    for (const Entry* e = first_.load(std::memory_order_acquire); e != nullptr; e = e->next) {
      if (e->key == key) return e->function;
    }
    return nullptr;
  }
  // Returns the kernel of `key`; compiles the text that make() returns if there is none yet.
  template <class Make>
  Function find_or_make(const Key& key, int32_t device, Make&& make) {
    if (const Function found = find(key)) return found;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const Function found = find(key)) return found;
    const Function function = load_function(make(), device);
    first_.store(new Entry{key, function, first_.load(std::memory_order_relaxed)},
                 std::memory_order_release);
    return function;
  }

 private:
  struct Entry {
    Key key;
    Function function;
    const Entry* next;
  };
  std::atomic<const Entry*> first_{nullptr};
  std::mutex mutex_;
};

// Writes the prelude's Faults, for programs that divide integers. `site` is stored in the program,
// 0 before the first call.
void write_faults(const mt_ctx& ctx, const Program& program, std::atomic<uint32_t>& site,
                  Params& params);

// Queues a kernel on the context's stream. `what` names it in errors.
void launch_function(const mt_ctx& ctx, const char* what, Function function, dim3 blocks,
                     dim3 threads, Params& params);

}  // namespace mytorch::cuda
