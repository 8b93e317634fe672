// Division by multiplication.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mytorch::cuda {

// Division of numbers below 2^31 by a number known to the host: n / d = (n * factor >> 32) >>
// shift, with one addition in between (Granlund and Montgomery, 1994).
struct Divisor {
  uint32_t by = 1;
  uint32_t factor = 1;
  uint32_t shift = 0;

  Divisor() = default;
  explicit Divisor(uint32_t size) : by(std::max(size, 1u)) {  // 0 elements are never divided
    const uint32_t d = by;
    while (shift < 32 && (uint64_t{1} << shift) < d) ++shift;
    factor = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
#ifdef __CUDACC__
  __device__ uint32_t divide(uint32_t n) const { return (__umulhi(n, factor) + n) >> shift; }
#endif
};

}  // namespace mytorch::cuda
