// nonzero: counts the nonzero elements of tiles in row-major order, scans the counts, and reads the
// total on the host, which must allocate the output; then each tile writes its rows.
#include <cstdint>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/capture.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/nonzero.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kNonzeroThreads = 256;
constexpr int kItems = 8;
constexpr int64_t kTile = kNonzeroThreads * kItems;

struct Elements {
  Strided<1> loop;
  const void* data;
  uint32_t key;

  __device__ __forceinline__ bool at(int64_t i) const {
    if (i >= loop.numel) return false;
    int64_t place[1];
    loop.offsets(i, place);
    return load_any<bool>(data, place[0], key);
  }
};

__global__ void __launch_bounds__(kNonzeroThreads)
    count_tiles(Elements elements, int64_t tiles, int64_t* counts) {
  using Reduce = cub::BlockReduce<int, kNonzeroThreads>;
  __shared__ typename Reduce::TempStorage storage;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    int count = 0;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      count += elements.at(tile * kTile + i * kNonzeroThreads + threadIdx.x);
    }
    count = Reduce(storage).Sum(count);
    if (threadIdx.x == 0) counts[tile] = count;
    __syncthreads();
  }
}

// Exclusive scan of the counts; the total is stored after them.
__global__ void __launch_bounds__(1024) before_tiles(int64_t tiles, int64_t* counts) {
  using Block = cub::BlockScan<int64_t, 1024>;
  __shared__ typename Block::TempStorage storage;
  int64_t carry = 0;
  for (int64_t first = 0; first < tiles; first += 1024) {
    const int64_t k = first + threadIdx.x;
    int64_t value = k < tiles ? counts[k] : 0;
    int64_t total;
    Block(storage).ExclusiveSum(value, value, total);
    if (k < tiles) counts[k] = carry + value;
    carry += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) counts[tiles] = carry;
}

struct Shape {
  int ndim;
  int64_t size[sdk::kMaxDims];
};

__global__ void __launch_bounds__(kNonzeroThreads)
    write_tiles(Elements elements, int64_t tiles, const int64_t* before, Shape shape,
                int64_t row_stride, int64_t col_stride, int64_t* rows) {
  using Block = cub::BlockScan<int, kNonzeroThreads>;
  __shared__ typename Block::TempStorage storage;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first = tile * kTile + threadIdx.x * kItems;
    int place[kItems];
    bool own[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) place[i] = own[i] = elements.at(first + i);
    Block(storage).ExclusiveSum(place, place);
    for (int i = 0; i < kItems; ++i) {
      if (!own[i]) continue;
      int64_t* row = rows + (before[tile] + place[i]) * row_stride;
      int64_t rest = first + i;
      for (int d = shape.ndim - 1; d >= 0; --d) {
        row[d * col_stride] = rest % shape.size[d];
        rest /= shape.size[d];
      }
    }
    __syncthreads();
  }
}

void nonzero(mt_ctx& ctx, const mt_args_nonzero& args) {
  const TensorView self = args.self;
  check_not_captured(ctx, "nonzero", "needs the number of elements that are not zero on the host");
  const int ndim = self.ndim();
  const Elements elements{make_strided<1>(self.shape(), {self}, sdk::Order::kRowMajor), self.raw(),
                          sdk::dtype_key(self.dtype())};
  const int64_t tiles = (elements.loop.numel + kTile - 1) / kTile;
  int64_t* counts = nullptr;
  int64_t total = 0;
  Grid grid;
  grid.threads = dim3(kNonzeroThreads);
  grid.blocks =
      dim3(static_cast<unsigned>(std::min<int64_t>(std::max<int64_t>(tiles, 1), 1 << 20)));
  if (tiles > 0) {
    counts = scratch<int64_t>(ctx, tiles + 1);
    launch(ctx, "nonzero", count_tiles, grid, elements, tiles, counts);
    Grid one;
    one.blocks = dim3(1);
    one.threads = dim3(1024);
    launch(ctx, "nonzero", before_tiles, one, tiles, counts);
    CUDA(cudaMemcpyAsync(&total, counts + tiles, sizeof(total), cudaMemcpyDeviceToHost,
                         stream_of(ctx)));
    CUDA(cudaStreamSynchronize(stream_of(ctx)));
    // The wait for the stream also reports faults of earlier kernels.
    if (const std::string fault = take_fault(ctx.stream); !fault.empty()) {
      throw sdk::Error(MT_ERROR_VALUE, fault);
    }
  }
  const int64_t shape[] = {total, ndim};
  const TensorView out = ctx.make_output(&ctx, 0, shape, 2);
  if (!out) throw sdk::Error(MT_ERROR_OUT_OF_MEMORY, "[nonzero] no memory for the output");
  if (ndim == 0 || total == 0) return;
  Shape sizes{ndim, {}};
  for (int d = 0; d < ndim; ++d) sizes.size[d] = self.size(d);
  launch(ctx, "nonzero", write_tiles, grid, elements, tiles, static_cast<const int64_t*>(counts),
         sizes, out.stride(0), out.stride(1), out.data<int64_t>());
}

}  // namespace

void register_nonzero(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&nonzero>("tiles", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
