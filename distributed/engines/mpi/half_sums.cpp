// Sums of 16-bit floats, in float32. Compiled so that the loops are vectorized, for the best
// instruction set of the processor.
#include "distributed/engines/mpi/half_sums.h"

#include "mytorch/backend/dtype.h"

#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

namespace mytorch::comm_mpi {

FOR_EACH_PROCESSOR void add_bfloat16(const sdk::BFloat16* __restrict from,
                                     sdk::BFloat16* __restrict to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = sdk::BFloat16(static_cast<float>(from[i]) + static_cast<float>(to[i]));
  }
}

FOR_EACH_PROCESSOR void add_half(const sdk::Half* __restrict from, sdk::Half* __restrict to,
                                 int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = sdk::Half(static_cast<float>(from[i]) + static_cast<float>(to[i]));
  }
}

}  // namespace mytorch::comm_mpi
