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

constexpr int kConvertDims = 8;
constexpr int kConvertThreads = 256;
constexpr int kConvertsPerThread = 4;

template <class To, class From>
inline constexpr int kWidth = 16 / static_cast<int>(std::max(sizeof(To), sizeof(From)));

// kN elements per access, if both sides are aligned to that. The kernels of all types have the same
// parameters, which are passed by the same code.
template <class To, class From, int kN>
__global__ void __launch_bounds__(kConvertThreads)
    convert_packs(int64_t n, void* to_data, const void* from_data) {
  To* const to = static_cast<To*>(to_data);
  const From* const from = static_cast<const From*>(from_data);
  const int64_t packs = n / kN;
  const int64_t first = int64_t{blockIdx.x} * (kConvertThreads * kConvertsPerThread) + threadIdx.x;
  Pack<From, kN> read[kConvertsPerThread];
#pragma unroll
  for (int j = 0; j < kConvertsPerThread; ++j) {
    const int64_t i = first + j * kConvertThreads;
    if (i < packs) read[j] = reinterpret_cast<const Pack<From, kN>*>(from)[i];
  }
#pragma unroll
  for (int j = 0; j < kConvertsPerThread; ++j) {
    const int64_t i = first + j * kConvertThreads;
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

// A kernel, and the elements and the alignments of its accesses; none if the types are the same.
struct Conversion {
  void (*kernel)(int64_t, void*, const void*) = nullptr;
  int64_t pack = 1, to_bytes = 1, from_bytes = 1;
};
Conversion conversion_of(mt_dtype to_type, mt_dtype from_type) {
  return visit_type(to_type, [&](auto to_tag) {
    return visit_type(from_type, [](auto from_tag) {
      using To = typename decltype(to_tag)::type;
      using From = typename decltype(from_tag)::type;
      if constexpr (std::is_same_v<To, From>) {
        return Conversion();
      } else {
        constexpr int kN = kWidth<To, From>;
        return Conversion{convert_packs<To, From, kN>, kN, sizeof(To) * kN, sizeof(From) * kN};
      }
    });
  });
}

template <class To>
__global__ void __launch_bounds__(kConvertThreads)
    convert_elements(const __grid_constant__ OffsetCalculator<2, kConvertDims> part, To* to,
                     const void* from, uint32_t from_key) {
  const uint32_t first = blockIdx.x * (kConvertThreads * kConvertsPerThread) + threadIdx.x;
#pragma unroll
  for (int j = 0; j < kConvertsPerThread; ++j) {
    const uint32_t i = first + j * kConvertThreads;
    if (i >= part.numel) return;
    int64_t at[2];
    part.offsets(i, at);
    to[at[0]] = load_any<To>(from, at[1], from_key);
  }
}

}  // namespace

void convert_contiguous(mt_ctx& ctx, int64_t n, mt_dtype to_type, void* to, mt_dtype from_type,
                        const void* from) {
  const Conversion conversion = conversion_of(to_type, from_type);
  if (conversion.kernel == nullptr || !aligned(to, conversion.to_bytes) ||
      !aligned(from, conversion.from_bytes)) {
    const std::array<int64_t, 1> shape{n}, one{1};
    return convert_strided(ctx, CopyLoop(shape, {one.data(), one.data()}), to_type, to, from_type,
                           from);
  }
  const int64_t packs = std::max<int64_t>(1, n / conversion.pack);
  const int64_t blocks =
      (packs + kConvertThreads * kConvertsPerThread - 1) / (kConvertThreads * kConvertsPerThread);
  launch(ctx, "convert_packs", conversion.kernel,
         Grid{dim3(static_cast<unsigned>(blocks)), dim3(kConvertThreads)}, n, to, from);
}

void convert_strided(mt_ctx& ctx, const CopyLoop& loop, mt_dtype to_type, void* to,
                     mt_dtype from_type, const void* from) {
  visit_type(to_type, [&](auto tag) {
    using To = typename decltype(tag)::type;
    const int64_t itemsize = sdk::itemsize(from_type);
    for_each_part<kConvertDims>(
        loop, [&](const OffsetCalculator<2, kConvertDims>& part, const std::array<int64_t, 2>& at) {
          const unsigned blocks = (part.numel + kConvertThreads * kConvertsPerThread - 1) /
                                  (kConvertThreads * kConvertsPerThread);
          const void* source = static_cast<const char*>(from) + at[1] * itemsize;
          launch(ctx, "convert_elements", convert_elements<To>,
                 Grid{dim3(blocks), dim3(kConvertThreads)}, part, static_cast<To*>(to) + at[0],
                 source, sdk::dtype_key(from_type));
        });
  });
}

}  // namespace mytorch::cuda
