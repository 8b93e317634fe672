// Dtype conversions. The contiguous kernel, used by every cast of a network, is compiled for each
// pair of dtypes and accesses 16 bytes at a time. The strided kernel selects the source's dtype at
// run time.
#include <algorithm>
#include <cstdint>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/copy/copy.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

constexpr int kDims = 8;
constexpr int kThreads = 256;
constexpr int kPerThread = 4;

template <class To, class From>
inline constexpr int kWidth = 16 / static_cast<int>(std::max(sizeof(To), sizeof(From)));

// kN elements per access, if both sides are aligned to that.
template <class To, class From, int kN>
__global__ void __launch_bounds__(kThreads) convert_packs(int64_t n, To* to, const From* from) {
  const int64_t packs = n / kN;
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kPerThread) + threadIdx.x;
  Pack<From, kN> read[kPerThread];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int64_t i = first + j * kThreads;
    if (i < packs) read[j] = reinterpret_cast<const Pack<From, kN>*>(from)[i];
  }
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int64_t i = first + j * kThreads;
    if (i >= packs) break;
    Pack<To, kN> written;
#pragma unroll
    for (int k = 0; k < kN; ++k) written.at[k] = convert<To>(read[j].at[k]);
    reinterpret_cast<Pack<To, kN>*>(to)[i] = written;
  }
  // The remaining elements after the last whole pack.
  const int64_t i = packs * kN + first;
  if (kN > 1 && i < n) to[i] = convert<To>(from[i]);
}

template <class To, class From, int kN>
void start(mt_ctx& ctx, int64_t n, To* to, const From* from) {
  const int64_t packs = std::max<int64_t>(1, n / kN);
  const int64_t blocks = (packs + kThreads * kPerThread - 1) / (kThreads * kPerThread);
  launch(ctx, "convert_packs", convert_packs<To, From, kN>,
         Grid{dim3(static_cast<unsigned>(blocks)), dim3(kThreads)}, n, to, from);
}

template <class To>
__global__ void __launch_bounds__(kThreads)
    convert_elements(const __grid_constant__ OffsetCalculator<2, kDims> part, To* to,
                     const void* from, uint32_t from_key) {
  const uint32_t first = blockIdx.x * (kThreads * kPerThread) + threadIdx.x;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const uint32_t i = first + j * kThreads;
    if (i >= part.numel) return;
    int64_t at[2];
    part.offsets(i, at);
    to[at[0]] = load_any<To>(from, at[1], from_key);
  }
}

}  // namespace

void convert_contiguous(mt_ctx& ctx, int64_t n, mt_dtype to_type, void* to, mt_dtype from_type,
                        const void* from) {
  visit_type(to_type, [&](auto to_tag) {
    visit_type(from_type, [&](auto from_tag) {
      using To = typename decltype(to_tag)::type;
      using From = typename decltype(from_tag)::type;
      if constexpr (!std::is_same_v<To, From>) {
        constexpr int kN = kWidth<To, From>;
        if (aligned(to, sizeof(To) * kN) && aligned(from, sizeof(From) * kN)) {
          start<To, From, kN>(ctx, n, static_cast<To*>(to), static_cast<const From*>(from));
          return;
        }
      }
      const std::array<int64_t, 1> shape{n}, one{1};
      convert_strided(ctx, CopyLoop(shape, {one.data(), one.data()}), to_type, to, from_type, from);
    });
  });
}

void convert_strided(mt_ctx& ctx, const CopyLoop& loop, mt_dtype to_type, void* to,
                     mt_dtype from_type, const void* from) {
  visit_type(to_type, [&](auto tag) {
    using To = typename decltype(tag)::type;
    const int64_t itemsize = sdk::itemsize(from_type);
    for_each_part<kDims>(loop, [&](const OffsetCalculator<2, kDims>& part,
                                   const std::array<int64_t, 2>& at) {
      const unsigned blocks = (part.numel + kThreads * kPerThread - 1) / (kThreads * kPerThread);
      const void* source = static_cast<const char*>(from) + at[1] * itemsize;
      launch(ctx, "convert_elements", convert_elements<To>, Grid{dim3(blocks), dim3(kThreads)},
             part, static_cast<To*>(to) + at[0], source, sdk::dtype_key(from_type));
    });
  });
}

}  // namespace mytorch::cuda
