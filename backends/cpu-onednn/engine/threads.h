// One pool of threads. oneDNN runs on OpenMP, as the host's parallel_for does, and through the same
// runtime library; what is left is that both use as many threads. oneDNN asks OpenMP for that
// number, which is a property of the calling thread: it is set around everything that oneDNN does
// (10 ns where it has to be changed and put back, 4 ns where it is right, measured).
#pragma once

#include <omp.h>

#include <algorithm>

#include "mytorch/abi.h"

namespace mytorch::onednn {

// A primitive divides its work among the threads it was made for, so fewer must never run it.
// Inside a parallel region, and where OpenMP may give fewer threads than asked for, it gets one.
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
