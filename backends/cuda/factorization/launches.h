// Launches of the kernels that factorize one matrix per thread block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {

// These kernels come before the library's.
inline constexpr int32_t kBlocksPriority = 1;

// The shared memory of a block that every GPU has.
inline constexpr int64_t kMostShared = 64 * 1024;

// Why a call is not for these kernels, or nullptr. With MYTORCH_CUDA_LINALG=library, which is for
// tests, none is.
inline const char* size_reason(int64_t shared) {
  static const bool never = [] {
    const char* text = std::getenv("MYTORCH_CUDA_LINALG");
    return text != nullptr && std::strcmp(text, "library") == 0;
  }();
  if (never) return "MYTORCH_CUDA_LINALG=library";
  return shared <= kMostShared ? nullptr : "a matrix does not fit in the shared memory of a block";
}

// Queues `kernel` with a block of `threads` threads for each of `count` matrices.
template <class... Params, class... Args>
void launch_blocks(mt_ctx& ctx, const char* name, void (*kernel)(Params...), int64_t count,
                   int threads, int64_t shared, const Args&... args) {
  Grid grid;
  grid.blocks = dim3(static_cast<unsigned>(std::min<int64_t>(count, 1 << 20)));
  grid.threads = dim3(static_cast<unsigned>(threads));
  grid.shared = static_cast<size_t>(shared);
  allow_shared(ctx, reinterpret_cast<const void*>(kernel), grid.shared);
  launch(ctx, name, kernel, grid, args...);
}

}  // namespace mytorch::cuda
