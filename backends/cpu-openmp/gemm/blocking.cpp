#include "backends/cpu-openmp/gemm/blocking.h"

#include <unistd.h>

#include <algorithm>

namespace mytorch::cpu::gemm_internal {
namespace {

// The reported size, clamped: some operating systems and virtual machines report 0, or the L3 of
// the whole host.
int64_t cache_size(int name, int64_t otherwise, int64_t least, int64_t most) {
  const int64_t reported = sysconf(name);
  return std::clamp(reported > 0 ? reported : otherwise, least, most);
}

// Returns the size of equal blocks that cover `total`: a multiple of `unit`, at most about `most`.
int64_t balanced(int64_t total, int64_t most, int64_t unit) {
  const int64_t blocks = std::max<int64_t>(1, divide_up(total, std::max(most, unit)));
  return std::max(unit, round_up(divide_up(total, blocks), unit));
}

}  // namespace

const CacheSizes& cache_sizes() {
  static const CacheSizes sizes = {
      cache_size(_SC_LEVEL1_DCACHE_SIZE, 32 << 10, 16 << 10, 128 << 10),
      cache_size(_SC_LEVEL2_CACHE_SIZE, 512 << 10, 256 << 10, 4 << 20),
      cache_size(_SC_LEVEL3_CACHE_SIZE, 8 << 20, 4 << 20, 32 << 20),
  };
  return sizes;
}

Blocking choose_blocking(int64_t m, int64_t n, int64_t k, int64_t bytes, int64_t tile_rows,
                         int64_t tile_cols) {
  const CacheSizes& caches = cache_sizes();
  Blocking blocking;
  // Below 256, the loads and stores of C become noticeable; above 512, there is nothing to gain.
  const int64_t kc = std::clamp<int64_t>(caches.l1 / (tile_cols * bytes), 256, 512);
  blocking.kc = balanced(k, kc, 1);
  blocking.mc = balanced(m, caches.l2 / 2 / (blocking.kc * bytes), tile_rows);
  // A quarter of the L3, which other cores use too; a larger block would not reuse A better.
  blocking.nc =
      balanced(n, std::min<int64_t>(caches.l3 / 4 / (blocking.kc * bytes), 4096), tile_cols);
  return blocking;
}

}  // namespace mytorch::cpu::gemm_internal
