// Copies without conversion between any strides. Contiguous runs on both sides are passed as
// elements of up to 16 bytes.
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/copy/copy.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {
namespace {

constexpr int kDims = 8;
constexpr int kThreads = 256;
constexpr int kPerThread = 4;  // loads in flight before the first store

template <class T>
__global__ void __launch_bounds__(kThreads)
    move_elements(const __grid_constant__ OffsetCalculator<2, kDims> part, T* to, const T* from) {
  const uint32_t first = blockIdx.x * (kThreads * kPerThread) + threadIdx.x;
  T value[kPerThread];
  int64_t target[kPerThread];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const uint32_t i = first + j * kThreads;
    if (i < part.numel) {
      int64_t at[2];
      part.offsets(i, at);
      target[j] = at[0];
      value[j] = from[at[1]];
    }
  }
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if (first + j * kThreads < part.numel) to[target[j]] = value[j];
  }
}

template <class T>
void move_as(mt_ctx& ctx, const CopyLoop& loop, void* to, const void* from) {
  for_each_part<kDims>(loop, [&](const auto& part, const auto& at) {
    const unsigned blocks = (part.numel + kThreads * kPerThread - 1) / (kThreads * kPerThread);
    launch(ctx, "move_elements", move_elements<T>, Grid{dim3(blocks), dim3(kThreads)}, part,
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
