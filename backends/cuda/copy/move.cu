// Copies without conversion between any strides. Contiguous runs on both sides are passed as
// elements of up to 16 bytes.
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/copy/copy.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {
namespace {

constexpr int kMoveDims = 8;
constexpr int kMoveThreads = 256;
constexpr int kMovesPerThread = 4;  // loads in flight before the first store

template <class T>
__global__ void __launch_bounds__(kMoveThreads)
    move_elements(const __grid_constant__ OffsetCalculator<2, kMoveDims> part, T* to,
                  const T* from) {
  const uint32_t first = blockIdx.x * (kMoveThreads * kMovesPerThread) + threadIdx.x;
  T value[kMovesPerThread];
  int64_t target[kMovesPerThread];
#pragma unroll
  for (int j = 0; j < kMovesPerThread; ++j) {
    const uint32_t i = first + j * kMoveThreads;
    if (i < part.numel) {
      int64_t at[2];
      part.offsets(i, at);
      target[j] = at[0];
      value[j] = from[at[1]];
    }
  }
#pragma unroll
  for (int j = 0; j < kMovesPerThread; ++j) {
    if (first + j * kMoveThreads < part.numel) to[target[j]] = value[j];
  }
}

template <class T>
void move_as(mt_ctx& ctx, const CopyLoop& loop, void* to, const void* from) {
  for_each_part<kMoveDims>(loop, [&](const auto& part, const auto& at) {
    const unsigned blocks =
        (part.numel + kMoveThreads * kMovesPerThread - 1) / (kMoveThreads * kMovesPerThread);
    launch(ctx, "move_elements", move_elements<T>, Grid{dim3(blocks), dim3(kMoveThreads)}, part,
           static_cast<T*>(to) + at[0], static_cast<const T*>(from) + at[1]);
  });
}

}  // namespace

void move_strided(mt_ctx& ctx, const CopyLoop& loop, int64_t itemsize, void* to, const void* from) {
  if (itemsize == 16) return move_as<uint4>(ctx, loop, to, from);
  sdk::visit_itemsize(
      itemsize, [&](auto tag) { move_as<typename decltype(tag)::type>(ctx, loop, to, from); });
}

}  // namespace mytorch::cuda
