// Cumulative sums. Floating-point types accumulate in double, as in ATen, because rounding errors
// accumulate in order. If neighbouring lines are adjacent in memory, each thread scans a line;
// otherwise a block does, tile by tile. A few long lines are split into pieces, whose sums are
// computed first. The order of all additions is fixed.
#include <cstdint>
#include <cstdlib>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <type_traits>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/cumsum.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kScanThreads = 256;
constexpr int kScanItems = 4;
constexpr int64_t kScanTile = kScanThreads * kScanItems;
constexpr int64_t kScanPiece = 16 * kScanTile;

// Unsigned sums wrap on overflow.
template <class T>
using Running = std::conditional_t<is_float<T>, double, uint64_t>;

// The operands; elements of the input are converted to T.
template <class T>
struct Scan {
  Lines<2> lines;  // out, in
  const void* in;
  uint32_t in_key;
  T* out;

  __device__ __forceinline__ Running<T> load(int64_t at) const {
    const T value = in_key == key() ? static_cast<const T*>(in)[at] : load_any<T>(in, at, in_key);
    if constexpr (is_float<T>) {
      return static_cast<double>(widen(value));
    } else {
      return static_cast<uint64_t>(static_cast<int64_t>(value));
    }
  }
  __device__ __forceinline__ void store(int64_t at, Running<T> sum) const {
    if constexpr (is_float<T>) {
      out[at] = convert<T>(sum);
    } else {
      out[at] = convert<T>(static_cast<int64_t>(sum));
    }
  }
  static constexpr uint32_t key() {
    if constexpr (std::is_same_v<T, __half>) {
      return sdk::dtype_key(sdk::dtype_of<sdk::Half>);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      return sdk::dtype_key(sdk::dtype_of<sdk::BFloat16>);
    } else {
      return sdk::dtype_key(sdk::dtype_of<T>);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(128) scan_by_threads(Scan<T> scan) {
  const int64_t n = scan.lines.size[0];
  for (int64_t line = first_element(); line < scan.lines.loop.numel; line += grid_step()) {
    int64_t at[2];
    scan.lines.loop.offsets(line, at);
    Running<T> sum = 0;
    for (int64_t k = 0; k < n; ++k) {
      sum += scan.load(at[1] + k * scan.lines.step[1]);
      scan.store(at[0] + k * scan.lines.step[0], sum);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kScanThreads)
    sum_scan_pieces(Scan<T> scan, int64_t pieces, Running<T>* sums) {
  using Reduce = cub::BlockReduce<Running<T>, kScanThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const int64_t n = scan.lines.size[0];
  for (int64_t b = blockIdx.x; b < scan.lines.loop.numel * pieces; b += gridDim.x) {
    int64_t at[2];
    scan.lines.loop.offsets(b / pieces, at);
    const int64_t first = b % pieces * kScanPiece;
    const int64_t last = min(first + kScanPiece, n);
    Running<T> sum = 0;
    for (int64_t k = first + threadIdx.x; k < last; k += kScanThreads) {
      sum += scan.load(at[1] + k * scan.lines.step[1]);
    }
    sum = Reduce(storage).Sum(sum);
    if (threadIdx.x == 0) sums[b] = sum;
    __syncthreads();
  }
}

// Exclusive scan of the sums of pieces, one block for each line.
template <class S>
__global__ void __launch_bounds__(kScanThreads) before_pieces(int64_t pieces, S* sums) {
  using Block = cub::BlockScan<S, kScanThreads>;
  __shared__ typename Block::TempStorage storage;
  S* own = sums + blockIdx.x * pieces;
  S carry = 0;
  for (int64_t first = 0; first < pieces; first += kScanThreads) {
    const int64_t k = first + threadIdx.x;
    S value = k < pieces ? own[k] : S(0);
    S total;
    Block(storage).ExclusiveSum(value, value, total);
    if (k < pieces) own[k] = carry + value;
    carry += total;
    __syncthreads();
  }
}

// One block for each piece of a line, or for each line if `before` is NULL.
template <class T>
__global__ void __launch_bounds__(kScanThreads)
    scan_by_blocks(Scan<T> scan, int64_t pieces, int64_t length, const Running<T>* before) {
  using Block = cub::BlockScan<Running<T>, kScanThreads>;
  __shared__ typename Block::TempStorage storage;
  const int64_t n = scan.lines.size[0];
  for (int64_t b = blockIdx.x; b < scan.lines.loop.numel * pieces; b += gridDim.x) {
    int64_t at[2];
    scan.lines.loop.offsets(b / pieces, at);
    const int64_t begin = b % pieces * length;
    const int64_t end = min(begin + length, n);
    Running<T> carry = before == nullptr ? Running<T>(0) : before[b];
    for (int64_t first = begin; first < end; first += kScanTile) {
      Running<T> sums[kScanItems];
      const int64_t own = first + threadIdx.x * kScanItems;
#pragma unroll
      for (int i = 0; i < kScanItems; ++i) {
        sums[i] = own + i < end ? scan.load(at[1] + (own + i) * scan.lines.step[1]) : Running<T>(0);
      }
      Running<T> total;
      Block(storage).InclusiveSum(sums, sums, total);
#pragma unroll
      for (int i = 0; i < kScanItems; ++i) {
        if (own + i < end) scan.store(at[0] + (own + i) * scan.lines.step[0], carry + sums[i]);
      }
      carry += total;
      __syncthreads();
    }
  }
}

template <class T>
void run(mt_ctx& ctx, const TensorView& self, const TensorView& out, int64_t dim) {
  const Scan<T> scan{Lines<2>(sdk::make_lines<2>({out, self}, dim)), self.raw(),
                     sdk::dtype_key(self.dtype()), out.data<T>()};
  const auto& loop = scan.lines.loop;
  const int64_t n = scan.lines.size[0], count = loop.numel;
  const bool side_by_side =
      loop.ndim > 0 && std::abs(loop.stride[0][0]) < std::abs(scan.lines.step[0]);
  const int64_t busy = 2 * properties(ctx.device.index).multiprocessors;
  if (n == 1 || (side_by_side && count >= 32 * busy)) {
    launch(ctx, "cumsum", scan_by_threads<T>, grid_for(ctx, count, 128), scan);
    return;
  }
  Grid grid;
  grid.threads = dim3(kScanThreads);
  const auto blocks = [](int64_t wanted) {
    return dim3(static_cast<unsigned>(std::min<int64_t>(wanted, 1 << 20)));
  };
  if (count >= busy || n <= kScanPiece) {
    grid.blocks = blocks(count);
    launch(ctx, "cumsum", scan_by_blocks<T>, grid, scan, int64_t{1}, n,
           static_cast<const Running<T>*>(nullptr));
    return;
  }
  const int64_t pieces = (n + kScanPiece - 1) / kScanPiece;
  Running<T>* sums = scratch<Running<T>>(ctx, count * pieces);
  grid.blocks = blocks(count * pieces);
  launch(ctx, "cumsum", sum_scan_pieces<T>, grid, scan, pieces, sums);
  Grid lines = grid;
  lines.blocks = dim3(static_cast<unsigned>(count));
  launch(ctx, "cumsum", before_pieces<Running<T>>, lines, pieces, sums);
  launch(ctx, "cumsum", scan_by_blocks<T>, grid, scan, pieces, kScanPiece,
         static_cast<const Running<T>*>(sums));
}

void cumsum(mt_ctx& ctx, const mt_args_cumsum& args) {
  const TensorView out = args.out;
  if (out.numel() == 0) return;
  visit_type(out.dtype(),
             [&](auto tag) { run<typename decltype(tag)::type>(ctx, args.self, out, args.dim); });
}

}  // namespace

void register_scan(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&cumsum>("pieces", MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES));
}

}  // namespace mytorch::cuda
