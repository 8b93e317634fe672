// One pool of threads. oneDNN and the host's parallel_for use the same OpenMP library, so only the
// number of threads must agree. oneDNN asks OpenMP for that number, which is a property of the
// calling thread, so it is set around all calls of oneDNN. (Measured: 10 ns if it must be changed
// and restored, 4 ns otherwise.)
#pragma once

#include <omp.h>

#include <algorithm>

#include "mytorch/abi.h"

namespace mytorch::onednn {

// Returns the number of threads for a primitive. A primitive divides its work among the threads
// that it was made for, so fewer threads must never run it. Returns 1 inside a parallel region, or
// if OpenMP may provide fewer threads than requested.
inline int threads_of(const mt_ctx& ctx) {
  if (ctx.num_threads <= 1 || omp_in_parallel() != 0 || omp_get_dynamic() != 0) return 1;
  return std::min<int>(ctx.num_threads, omp_get_thread_limit());
}

class ThreadScope {
 public:
  explicit ThreadScope(int threads) : saved_(omp_get_max_threads()), set_(saved_ != threads) {
    if (set_) omp_set_num_threads(threads);
  }
  ~ThreadScope() {
    if (set_) omp_set_num_threads(saved_);
  }
  ThreadScope(const ThreadScope&) = delete;

 private:
  int saved_;
  bool set_;
};

}  // namespace mytorch::onednn
