// fill_: one value of any dtype into a tensor of any dtype and strides.
#include <algorithm>
#include <cstring>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/copy/copy.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/fill_.h"
#include "mytorch/backend/kernel.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cuda {
namespace {

constexpr int kFillDims = 12;
constexpr int kFillThreads = 256;

constexpr int kFillsPerThread = 4;  // packs

// `head` elements precede the first one that is aligned to 16 bytes.
template <class T>
__global__ void __launch_bounds__(kFillThreads)
    fill_contiguous(T* to, int64_t n, int64_t head, T value) {
  Pack<T, kPack<T>> pack;
#pragma unroll
  for (int k = 0; k < kPack<T>; ++k) pack.at[k] = value;
  const int64_t packs = (n - head) / kPack<T>;
  auto* body = reinterpret_cast<Pack<T, kPack<T>>*>(to + head);
  const int64_t first = int64_t{blockIdx.x} * (kFillThreads * kFillsPerThread) + threadIdx.x;
#pragma unroll
  for (int j = 0; j < kFillsPerThread; ++j) {
    if (first + j * kFillThreads < packs) body[first + j * kFillThreads] = pack;
  }
  if (first < head) to[first] = value;
  const int64_t tail = head + packs * kPack<T> + first;
  if (tail < n && first < kPack<T>) to[tail] = value;
}

template <class T>
__global__ void __launch_bounds__(kFillThreads)
    fill_strided(const __grid_constant__ OffsetCalculator<1, kFillDims> part, T* to, T value) {
  for (int64_t i = first_element(); i < part.numel; i += grid_step()) {
    int64_t at[1];
    part.offsets(static_cast<uint32_t>(i), at);
    to[at[0]] = value;
  }
}

void fill_entry(mt_ctx& ctx, const mt_args_fill_& args) { copy(ctx, args.self, args.value); }

}  // namespace

void fill(mt_ctx& ctx, const mt_tensor* tensor, const void* value) {
  const sdk::TensorView to(tensor);
  if (to.numel() == 0) return;
  const auto loop = sdk::make_loop<1>(to.shape(), {to});
  sdk::visit_itemsize(to.itemsize(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T bits;
    std::memcpy(&bits, value, sizeof(T));
    T* data = to.data<T>();
    const int64_t n = loop.numel();
    if (loop.is_contiguous(0)) {
      const auto over = reinterpret_cast<uintptr_t>(data) % 16;
      const int64_t head = std::min<int64_t>(n, (16 - over) % 16 / sizeof(T));
      const int64_t share = int64_t{kFillThreads} * kFillsPerThread * kPack<T>;
      const Grid grid{dim3(static_cast<unsigned>((n + share - 1) / share)), dim3(kFillThreads)};
      launch(ctx, "fill_contiguous", fill_contiguous<T>, grid, data, n, head, bits);
      return;
    }
    for_each_part<kFillDims>(
        loop, [&](const OffsetCalculator<1, kFillDims>& part, const std::array<int64_t, 1>& at) {
          launch(ctx, "fill_strided", fill_strided<T>, grid_for(ctx, part.numel, kFillThreads),
                 part, data + at[0], bits);
        });
  });
}

void register_fill(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&fill_entry>(
      "fill", MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES));
}

}  // namespace mytorch::cuda
