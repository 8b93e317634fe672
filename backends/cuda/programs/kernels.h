// Compiled kernels, found by what they were compiled for, and their launch.
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

// The kernel named "kernel" of a text, ready on a device. Never unloaded.
Function load_function(const std::string& text, int32_t device);

// How many blocks of so many threads a multiprocessor holds at once. Asked of the driver once for
// each kernel.
int resident_blocks(Function function, int64_t threads);

// Kernels of one program. Reading takes no lock: entries are added in front of a list and stay.
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
  // `make` returns the text.
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

// The prelude's Faults, for programs that divide integers. `site` is the program's own, 0 before
// the first call.
void write_faults(const mt_ctx& ctx, const Program& program, std::atomic<uint32_t>& site,
                  Params& params);

// Queues a kernel on the context's stream. `what` is for errors.
void launch_function(const mt_ctx& ctx, const char* what, Function function, dim3 blocks,
                     dim3 threads, Params& params);

}  // namespace mytorch::cuda
