// The threads of oneDNN's parallel regions: the host's, or libgomp's in programs that have loaded
// libgomp before (mytorch/backend/openmp.h). oneDNN asks OpenMP for their number, which is a
// property of the calling thread, so it is set around all calls of oneDNN.
#pragma once

#include "mytorch/abi.h"
#include "mytorch/backend/openmp.h"

namespace mytorch::onednn {

// Whether oneDNN's regions run on the host's threads.
bool runs_on_host();

// Returns the number of threads for a primitive. A primitive divides its work among the threads
// that it was made for, so fewer threads must never run it. Returns 1 inside a parallel region, or
// if there may be fewer threads than requested.
inline int threads_of(mt_ctx& ctx) { return sdk::openmp::threads_of(ctx, runs_on_host()); }

class ThreadScope : sdk::openmp::Scope {
 public:
  ThreadScope(mt_ctx& ctx, int threads) : Scope(ctx, threads, runs_on_host()) {}
};

}  // namespace mytorch::onednn
