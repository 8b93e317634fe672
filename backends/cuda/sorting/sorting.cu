// Stable sorts along a dimension. Positions are sorted by key with an LSD radix sort, which is
// stable; then elements are gathered by position. A short line is sorted by one block in shared
// memory. Long lines use CUB's device-wide sort: one by one if they are few, else together, by key
// and then, stably, by line.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cub/block/block_radix_sort.cuh>
#include <cub/device/device_radix_sort.cuh>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "backends/cuda/sorting/keys.cuh"
#include "mytorch/abi_ops/sort.h"
#include "mytorch/abi_ops/topk.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kSortThreads = 256;
constexpr int kMostItems = 16;  // per thread

// The operands of a sort. Outputs are optional.
struct Request {
  Lines<3> lines;  // self, values, indices
  const void* self;
  void* values;
  int64_t* indices;
  uint32_t dtype;
  int bits;  // of a key
  int itemsize;
  int64_t keep;  // elements kept of each line
  bool descending;

#ifdef __CUDACC__
  // Writes element `position` of a line to place `rank`.
  __device__ __forceinline__ void put(const int64_t (&at)[3], int64_t rank,
                                      int64_t position) const {
    if (indices != nullptr) indices[at[2] + rank * lines.step[2]] = position;
    if (values == nullptr) return;
    const int64_t from = at[0] + position * lines.step[0];
    const int64_t to = at[1] + rank * lines.step[1];
    switch (itemsize) {
      case 1:
        static_cast<uint8_t*>(values)[to] = static_cast<const uint8_t*>(self)[from];
        break;
      case 2:
        static_cast<uint16_t*>(values)[to] = static_cast<const uint16_t*>(self)[from];
        break;
      case 4:
        static_cast<uint32_t*>(values)[to] = static_cast<const uint32_t*>(self)[from];
        break;
      default:
        static_cast<uint64_t*>(values)[to] = static_cast<const uint64_t*>(self)[from];
    }
  }
#endif
};

template <class K, int kItems>
__global__ void __launch_bounds__(kSortThreads) sort_lines(Request request) {
  using Sort = cub::BlockRadixSort<K, kSortThreads, kItems, uint16_t>;
  __shared__ typename Sort::TempStorage storage;
  const int64_t n = request.lines.size[0];
  for (int64_t line = blockIdx.x; line < request.lines.loop.numel; line += gridDim.x) {
    int64_t at[3];
    request.lines.loop.offsets(line, at);
    K keys[kItems];
    uint16_t positions[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int k = threadIdx.x * kItems + i;
      positions[i] = static_cast<uint16_t>(k);
      // Padding sorts last: its key is no smaller than any other, and its position is greater.
      keys[i] =
          k < n ? ordered(key_of<K>(request.self, at[0] + k * request.lines.step[0], request.dtype),
                          request.bits, request.descending)
                : ~K(0);
    }
    Sort(storage).SortBlockedToStriped(keys, positions, 0, request.bits);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const int rank = i * kSortThreads + threadIdx.x;
      if (rank < request.keep) request.put(at, rank, positions[i]);
    }
    __syncthreads();
  }
}

// Computes the keys and positions of lines [first, first + count). Positions are numbered across
// all of them.
template <class K>
__global__ void make_keys(Request request, int64_t first, int64_t count, K* keys,
                          uint32_t* positions) {
  const int64_t n = request.lines.size[0];
  for (int64_t i = first_element(); i < count * n; i += grid_step()) {
    int64_t at[3];
    request.lines.loop.offsets(first + i / n, at);
    keys[i] = ordered(key_of<K>(request.self, at[0] + i % n * request.lines.step[0], request.dtype),
                      request.bits, request.descending);
    positions[i] = static_cast<uint32_t>(i);
  }
}

__global__ void make_lines_of(int64_t n, int64_t numel, const uint32_t* positions,
                              uint32_t* line_of) {
  for (int64_t i = first_element(); i < numel; i += grid_step()) {
    line_of[i] = static_cast<uint32_t>(positions[i] / n);
  }
}

__global__ void put_sorted(Request request, int64_t first, int64_t count,
                           const uint32_t* positions) {
  const int64_t n = request.lines.size[0], keep = request.keep;
  for (int64_t i = first_element(); i < count * keep; i += grid_step()) {
    const int64_t line = i / keep, rank = i % keep;
    int64_t at[3];
    request.lines.loop.offsets(first + line, at);
    request.put(at, rank, positions[line * n + rank] - line * n);
  }
}

template <class K>
void sort_pairs(mt_ctx& ctx, cub::DoubleBuffer<K>& keys, cub::DoubleBuffer<uint32_t>& values,
                int64_t n, int bits) {
  size_t bytes = 0;
  use_device(ctx);
  CUDA(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, values, static_cast<int>(n), 0, bits,
                                       stream_of(ctx)));
  void* storage = scratch_bytes(ctx, bytes);
  CUDA(cub::DeviceRadixSort::SortPairs(storage, bytes, keys, values, static_cast<int>(n), 0, bits,
                                       stream_of(ctx)));
  if (synchronous) queued(ctx, "DeviceRadixSort");
}

template <class K>
void sort_long(mt_ctx& ctx, const Request& request) {
  const int64_t n = request.lines.size[0], lines = request.lines.count();
  constexpr int64_t kMost = int64_t{1} << 28;  // elements sorted at once
  if (n >= int64_t{1} << 31) {
    throw sdk::Error(MT_ERROR_UNSUPPORTED, "[sort] lines of 2^31 or more elements");
  }
  const bool together = lines > 4;
  const int64_t batch = together ? std::clamp<int64_t>(kMost / n, 1, lines) : 1;
  K* key_room = scratch<K>(ctx, 2 * batch * n);
  uint32_t* storage = scratch<uint32_t>(ctx, (together ? 4 : 2) * batch * n);
  for (int64_t first = 0; first < lines; first += batch) {
    const int64_t count = std::min(batch, lines - first);
    const int64_t numel = count * n;
    cub::DoubleBuffer<K> keys(key_room, key_room + numel);
    cub::DoubleBuffer<uint32_t> positions(storage, storage + numel);
    const Grid grid = grid_for(ctx, numel, 256);
    launch(ctx, "sort", make_keys<K>, grid, request, first, count, keys.Current(),
           positions.Current());
    sort_pairs(ctx, keys, positions, numel, request.bits);
    if (count > 1) {
      cub::DoubleBuffer<uint32_t> line_of(storage + 2 * numel, storage + 3 * numel);
      launch(ctx, "sort", make_lines_of, grid, n, numel,
             static_cast<const uint32_t*>(positions.Current()), line_of.Current());
      sort_pairs(ctx, line_of, positions, numel, std::bit_width(static_cast<uint32_t>(count - 1)));
    }
    launch(ctx, "sort", put_sorted, grid_for(ctx, count * request.keep, 256), request, first, count,
           static_cast<const uint32_t*>(positions.Current()));
  }
}

template <class K>
void sort_keys(mt_ctx& ctx, const Request& request) {
  const int64_t n = request.lines.size[0];
  if (n > kSortThreads * kMostItems) return sort_long<K>(ctx, request);
  Grid grid;
  grid.threads = dim3(kSortThreads);
  grid.blocks =
      dim3(static_cast<unsigned>(std::min<int64_t>(request.lines.count(), int64_t{1} << 20)));
  if (n <= kSortThreads) {
    launch(ctx, "sort", sort_lines<K, 1>, grid, request);
  } else if (n <= kSortThreads * 4) {
    launch(ctx, "sort", sort_lines<K, 4>, grid, request);
  } else {
    launch(ctx, "sort", sort_lines<K, kMostItems>, grid, request);
  }
}

void order(mt_ctx& ctx, const TensorView& self, const TensorView& values, const TensorView& indices,
           int64_t dim, int64_t keep, bool descending) {
  if (!values && !indices) return;
  const TensorView some = values ? values : indices;
  Request request;
  request.lines = Lines<3>(sdk::make_lines<3>({self, some, indices ? indices : some}, dim));
  if (request.lines.count() == 0 || request.lines.size[0] == 0 || keep == 0) return;
  request.self = self.raw();
  request.values = values ? values.raw() : nullptr;
  request.indices = indices ? indices.data<int64_t>() : nullptr;
  request.dtype = sdk::dtype_key(self.dtype());
  request.bits = key_bits(self.dtype());
  request.itemsize = static_cast<int>(self.itemsize());
  request.keep = keep;
  request.descending = descending;
  if (request.itemsize == 8) {
    sort_keys<uint64_t>(ctx, request);
  } else {
    sort_keys<uint32_t>(ctx, request);
  }
}

void sort(mt_ctx& ctx, const mt_args_sort_stable& args) {
  const TensorView self = args.self;
  order(ctx, self, args.values, args.indices, args.dim,
        self.ndim() == 0 ? 1 : self.size(sdk::wrap_dim(args.dim, self.ndim())),
        args.descending != 0);
}

void topk(mt_ctx& ctx, const mt_args_topk& args) {
  // A 0-dim tensor yields its element for every k.
  const TensorView self = args.self;
  order(ctx, self, args.values, args.indices, args.dim, self.ndim() == 0 ? 1 : args.k,
        args.largest != 0);
}

}  // namespace

void register_sorting(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&sort>("radix", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&topk>("radix", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
