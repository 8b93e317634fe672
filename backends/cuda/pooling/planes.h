// Sizes and strides of planes, of (N, C, H, W) or (C, H, W).
#pragma once

#include <cstdint>

#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

// Without a batch dimension, N is 1.
struct Planes {
  int64_t n = 1, c, h, w;
  int64_t sn = 0, sc, sh, sw;

  explicit Planes(const sdk::TensorView& x)
      : c(x.size(-3)),
        h(x.size(-2)),
        w(x.size(-1)),
        sc(x.stride(-3)),
        sh(x.stride(-2)),
        sw(x.stride(-1)) {
    if (x.ndim() < 4) return;
    n = x.size(0);
    sn = x.stride(0);
  }
  int64_t numel() const { return n * c * h * w; }
#ifdef __CUDACC__
  __device__ __forceinline__ int64_t plane(int64_t in, int64_t ic) const {
    return in * sn + ic * sc;
  }
#endif
};

}  // namespace mytorch::cuda
