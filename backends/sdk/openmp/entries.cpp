// The functions of libgomp that libraries call, on the host's threads: mytorch/backend/openmp.h.
#include "mytorch/backend/openmp.h"

namespace openmp = mytorch::sdk::openmp;

extern "C" {

MT_EXPORT void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned) {
  openmp::parallel(body, data, threads);
}
MT_EXPORT void GOMP_barrier() {
  if (openmp::thread.team > 1) openmp::thread.barrier->wait();
}
MT_EXPORT int omp_get_num_threads() { return openmp::thread.team; }
MT_EXPORT int omp_get_thread_num() { return openmp::thread.number; }
MT_EXPORT int omp_in_parallel() { return openmp::thread.team > 1; }
MT_EXPORT int omp_get_num_places() { return 0; }
MT_EXPORT int omp_get_max_threads() {
  ++openmp::thread.calls;
  return openmp::thread.threads;
}
MT_EXPORT void omp_set_num_threads(int threads) {
  ++openmp::thread.calls;
  // Without a scope there is nothing to run more threads on, and the library must not expect them.
  if (openmp::thread.ctx != nullptr && threads > 0) openmp::thread.threads = threads;
}

}  // extern "C"
