// The emulated device (device.cpp). A thread of a block is a fiber, which runs until it waits for
// others; blocks run one after the other.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace mytorch::cuda {

// The number of kernels compiled since the program began.
extern int texts_compiled;

namespace emulated {

extern uint3 threadIdx, blockIdx;  // NOLINT: CUDA's names
extern dim3 blockDim, gridDim;     // NOLINT

// The number of this thread in its block.
inline unsigned own_thread() { return threadIdx.y * blockDim.x + threadIdx.x; }

// Runs `kernel` for each thread of a grid, with `shared` bytes of dynamic shared memory.
void run_grid(dim3 blocks, dim3 threads, size_t shared, const std::function<void()>& kernel);
// The dynamic shared memory of the block, filled with 0xFF bytes when the block begins.
char* dynamic_shared();

// Waits for all threads of the block, or of the warp.
void meet(bool warp);

inline constexpr size_t kMostGathered = 64;  // bytes
// Memory for a value of each lane of this thread's warp.
char* exchanged(unsigned lane);

// Returns the values of all lanes of the warp, all of which call it.
template <class T>
std::array<T, 32> gather(const T& value) {
  static_assert(sizeof(T) <= kMostGathered && std::is_trivially_copyable_v<T>);
  std::memcpy(exchanged(own_thread() % 32), &value, sizeof(T));
  meet(true);
  std::array<T, 32> all;
  for (unsigned i = 0; i < 32; ++i) std::memcpy(&all[i], exchanged(i), sizeof(T));
  meet(true);
  return all;
}

inline void check_aligned(const void* at, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(at) % bytes != 0) {
    throw std::runtime_error("an access is not aligned to " + std::to_string(bytes) + " bytes");
  }
}

}  // namespace emulated
}  // namespace mytorch::cuda
