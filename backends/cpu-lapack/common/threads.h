// How a batch uses the threads: many or small matrices in parallel, each with a library call on one
// thread; few large ones one after the other, each with all threads of OpenBLAS.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "mytorch/backend.h"
#include "mytorch/backend/openmp.h"

namespace mytorch::lapack {

// The text of `mytorch info`.
const char* describe_library();

// Whether OpenBLAS runs on OpenMP. If it has threads of its own, every call uses one thread.
bool runs_on_openmp();

// Whether the parallel regions of OpenBLAS run on the host's threads.
bool runs_on_host();

// Sets the number of OpenMP's threads for the calls of this thread in its scope.
class ThreadScope : sdk::openmp::Scope {
 public:
  ThreadScope(mt_ctx& ctx, int threads) : Scope(ctx, threads, runs_on_host()) {}
};

// Held around calls of several threads. OpenBLAS would make a second one wait anyway, and changes
// tables that are not protected if the number of threads differs from the last call's.
std::mutex& many_threads();

// Calls f(b, memory) for every matrix b < count of a batch, where `memory` are `elements` of T for
// that call alone. `side` is the typical size of a dimension.
template <class T, class F>
void each_matrix(mt_ctx& ctx, int64_t count, int64_t side, int64_t elements, F&& f) {
  // Below this size threads gain less within a matrix than among matrices.
  constexpr int64_t kSmall = 256;
  // The work for which a further thread pays, in matrices.
  const int64_t work = side * side * side;
  const int64_t grain = work >= 20000 ? 1 : 1 + 20000 / (work < 1 ? 1 : work);
  const auto run = [&](int64_t begin, int64_t end, int threads) {
    const ThreadScope scope(ctx, threads);
    const std::unique_ptr<T[]> memory(new T[static_cast<size_t>(elements)]);
    for (int64_t b = begin; b < end; ++b) f(b, memory.get());
  };
  const int threads = runs_on_openmp() ? sdk::openmp::threads_of(ctx, runs_on_host()) : 1;
  if (threads == 1 || side < kSmall || count >= threads) {
    sdk::parallel_for(ctx, 0, count, grain, [&](int64_t b, int64_t e) { run(b, e, 1); });
    return;
  }
  const std::scoped_lock lock(many_threads());
  run(0, count, threads);
}

}  // namespace mytorch::lapack
