#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <optional>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/move.h"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/indexing/rows.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/embedding_dense_backward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// Runs of more positions than this are summed in pieces, split by position in the sorted order, so
// that a frequent index does not keep a single thread busy. A piece overlaps at most two such runs:
// one that begins before it (partial sum 0) and one that begins in it (partial sum 1).
constexpr uint32_t kPiece = 256;

// The sorted positions, as the kernels use them.
struct Runs {
  const uint32_t* keys;  // sorted row numbers; `rows` for positions that are skipped
  const uint32_t* positions;
  uint32_t* begin;  // range of each row in the sorted order; 0, 0 if empty
  uint32_t* end;
  uint32_t n;
  uint32_t rows;
};

__global__ void make_row_keys(Strided<1> loop, const void* index, uint32_t index_key, int64_t skip,
                              uint32_t* keys, uint32_t* positions, Faults faults) {
  for (int64_t i = first_element(); i < loop.numel; i += grid_step()) {
    int64_t at[1];
    loop.offsets(i, at);
    const int64_t value = load_index(index, at[0], index_key);
    const bool counts = faults.check(value) && value != skip;
    keys[i] = static_cast<uint32_t>(counts ? value : faults.size);
    positions[i] = static_cast<uint32_t>(i);
  }
}

__global__ void find_runs(Runs runs) {
  for (int64_t i = first_element(); i < runs.n; i += grid_step()) {
    const uint32_t key = runs.keys[i];
    if (key >= runs.rows) continue;
    if (i == 0 || runs.keys[i - 1] != key) runs.begin[key] = static_cast<uint32_t>(i);
    if (i == runs.n - 1 || runs.keys[i + 1] != key) runs.end[key] = static_cast<uint32_t>(i + 1);
  }
}

// Adds src at the sorted positions [first, last) to `sums`.
template <class T, int N>
__device__ __forceinline__ void add_run(const Runs& runs, uint32_t first, uint32_t last,
                                        const T* src, int64_t src_step, Sum<T> divisor,
                                        Sum<T> (&sums)[N]) {
#pragma unroll 4
  for (uint32_t e = first; e < last; ++e) {
    const auto row = *reinterpret_cast<const Pack<T, N>*>(src + runs.positions[e] * src_step);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      Sum<T> term = as_sum(row.at[k]);
      if constexpr (is_float<T>) {
        if (divisor != Sum<T>(1)) term = term / divisor;
      }
      sums[k] += term;
    }
  }
}

// Threads are assigned packs of columns: x in the block and y in the grid. Rows or pieces are y in
// the block and x in the grid.
template <int N>
__device__ __forceinline__ int64_t first_column() {
  return (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
}
template <int N>
__device__ __forceinline__ int64_t column_step() {
  return static_cast<int64_t>(gridDim.y) * blockDim.x * N;
}

template <class T, int N>
__global__ void __launch_bounds__(256)
    sum_pieces(Runs runs, Strided<3> columns, const T* src, int64_t src_step, bool by_count,
               Sum<T>* partial) {
  const uint32_t pieces = (runs.n + kPiece - 1) / kPiece;
  for (int64_t column = first_column<N>(); column < columns.numel; column += column_step<N>()) {
    int64_t at[3];
    columns.offsets(column, at);
    for (uint32_t p = blockIdx.x * blockDim.y + threadIdx.y; p < pieces;
         p += gridDim.x * blockDim.y) {
      const uint32_t first = p * kPiece;
      const uint32_t last = min(first + kPiece, runs.n);
      uint32_t before = runs.rows;
      for (int which = 0; which < 2; ++which) {
        const uint32_t key = runs.keys[which == 0 ? first : last - 1];
        if (key >= runs.rows || key == before) continue;
        before = key;
        const uint32_t begin = runs.begin[key], end = runs.end[key];
        if (end - begin <= kPiece) continue;
        Sum<T> sums[N] = {};
        add_run<T, N>(runs, max(begin, first), min(end, last), src + at[0], src_step,
                      static_cast<Sum<T>>(by_count ? end - begin : 1), sums);
        Sum<T>* to = partial + (int64_t{p} * 2 + (begin >= first)) * columns.numel + column;
#pragma unroll
        for (int k = 0; k < N; ++k) to[k] = sums[k];
      }
    }
  }
}

template <class T, int N>
__global__ void __launch_bounds__(256)
    write_rows(Runs runs, Strided<3> columns, const T* src, int64_t src_step, const T* self,
               int64_t self_step, T* out, int64_t out_step, bool by_count, const Sum<T>* partial) {
  for (int64_t column = first_column<N>(); column < columns.numel; column += column_step<N>()) {
    int64_t at[3];
    columns.offsets(column, at);
    for (uint32_t row = blockIdx.x * blockDim.y + threadIdx.y; row < runs.rows;
         row += gridDim.x * blockDim.y) {
      const uint32_t begin = runs.begin[row], end = runs.end[row];
      Sum<T> sums[N] = {};
      if (self != nullptr) {
        const auto start = *reinterpret_cast<const Pack<T, N>*>(self + at[1] + row * self_step);
#pragma unroll
        for (int k = 0; k < N; ++k) sums[k] = as_sum(start.at[k]);
      }
      if (end - begin <= kPiece) {
        add_run<T, N>(runs, begin, end, src + at[0], src_step,
                      static_cast<Sum<T>>(by_count ? end - begin : 1), sums);
      } else {
        for (uint32_t p = begin / kPiece; p <= (end - 1) / kPiece; ++p) {
          const Sum<T>* from =
              partial + (int64_t{p} * 2 + (begin >= p * kPiece)) * columns.numel + column;
#pragma unroll
          for (int k = 0; k < N; ++k) sums[k] += from[k];
        }
      }
      Pack<T, N> result;
#pragma unroll
      for (int k = 0; k < N; ++k) result.at[k] = sum_as<T>(sums[k]);
      *reinterpret_cast<Pack<T, N>*>(out + at[2] + row * out_step) = result;
    }
  }
}

template <class T, int N>
void write(mt_ctx& ctx, const RowSums& call, const Runs& runs) {
  const int64_t packs = call.columns.numel / N;
  Grid grid;
  unsigned across = 1;  // threads along the columns
  while (across < 256 && across < packs) across *= 2;
  grid.threads = dim3(across, 256 / across);
  const auto blocks = [&](int64_t n) {
    const int64_t most = int64_t{properties(ctx.device.index).multiprocessors} * 64;
    const int64_t wanted = (n + grid.threads.y - 1) / grid.threads.y;
    return dim3(static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, most)),
                static_cast<unsigned>(std::min<int64_t>((packs + across - 1) / across, 65535)));
  };
  const T* src = static_cast<const T*>(call.src);
  Sum<T>* partial = nullptr;
  if (runs.n > kPiece) {
    const int64_t pieces = (runs.n + kPiece - 1) / kPiece;
    partial = scratch<Sum<T>>(ctx, pieces * 2 * call.columns.numel);
    grid.blocks = blocks(pieces);
    launch(ctx, "sum_pieces", sum_pieces<T, N>, grid, runs, call.columns, src, call.src_step,
           call.by_count, partial);
  }
  grid.blocks = blocks(runs.rows);
  launch(ctx, "write_rows", write_rows<T, N>, grid, runs, call.columns, src, call.src_step,
         static_cast<const T*>(call.self), call.self_step, static_cast<T*>(call.out), call.out_step,
         call.by_count, static_cast<const Sum<T>*>(partial));
}

// Whether all rows consist of aligned packs of n elements.
bool in_packs(const RowSums& call, int n, int64_t itemsize) {
  const size_t bytes = static_cast<size_t>(n * itemsize);
  const bool own = call.self != nullptr;
  bool fits = call.columns.ndim >= 1 && aligned(call.src, bytes) && aligned(call.out, bytes) &&
              (!own || aligned(call.self, bytes)) && call.src_step % n == 0 &&
              call.out_step % n == 0 && (!own || call.self_step % n == 0);
  for (int d = 0; fits && d < call.columns.ndim; ++d) {
    for (int k = 0; k < 3; ++k) {
      if (k == 1 && !own) continue;
      const int64_t stride = call.columns.stride[d][k];
      fits = fits && (d == 0 ? stride == 1 && call.columns.size[0] % n == 0 : stride % n == 0);
    }
  }
  return fits;
}

}  // namespace

void sum_rows(mt_ctx& ctx, const RowSums& call, const Faults& faults) {
  const int64_t n = call.positions.numel;
  if (call.rows == 0 || call.columns.numel == 0) return;
  if (n >= int64_t{1} << 31 || call.rows >= int64_t{1} << 31) {
    throw sdk::Error(MT_ERROR_UNSUPPORTED, "sums of rows with 2^31 or more indices or rows");
  }
  // Double buffers for the radix sort.
  uint32_t* memory = scratch<uint32_t>(ctx, 4 * n + 2 * call.rows);
  cub::DoubleBuffer<uint32_t> keys(memory, memory + n);
  cub::DoubleBuffer<uint32_t> positions(memory + 2 * n, memory + 3 * n);
  uint32_t* begin = memory + 4 * n;
  use_device(ctx);
  CUDA(cudaMemsetAsync(begin, 0, static_cast<size_t>(2 * call.rows) * sizeof(uint32_t),
                       stream_of(ctx)));
  if (n > 0) {
    launch(ctx, "make_row_keys", make_row_keys, grid_for(ctx, n, 256), call.positions,
           static_cast<const void*>(call.index.raw()), sdk::dtype_key(call.index.dtype()),
           call.skip, keys.Current(), positions.Current(), faults);
    const int bits = std::bit_width(static_cast<uint32_t>(call.rows));
    size_t bytes = 0;
    CUDA(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, positions, static_cast<int>(n), 0,
                                         bits, stream_of(ctx)));
    void* storage = scratch_bytes(ctx, bytes);
    CUDA(cub::DeviceRadixSort::SortPairs(storage, bytes, keys, positions, static_cast<int>(n), 0,
                                         bits, stream_of(ctx)));
    if (synchronous) queued(ctx, "DeviceRadixSort");
  }
  const Runs runs{keys.Current(),    positions.Current(),      begin,
                  begin + call.rows, static_cast<uint32_t>(n), static_cast<uint32_t>(call.rows)};
  if (n > 0) launch(ctx, "find_runs", find_runs, grid_for(ctx, n, 256), runs);
  visit_type(call.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (in_packs(call, kPack<T>, sizeof(T))) {
      write<T, kPack<T>>(ctx, call, runs);
    } else {
      write<T, 1>(ctx, call, runs);
    }
  });
}

namespace {

void embedding_dense_backward(mt_ctx& ctx, const mt_args_embedding_dense_backward& args) {
  static const uint32_t site = fault_site("embedding_dense_backward");
  const TensorView out = args.out;
  if (!sdk::is_floating(out.dtype())) throw sdk::Declined{};
  const TensorView index = args.indices;
  TensorView grad = args.grad_output;
  // The gradient's rows must be at a constant stride; otherwise it is copied.
  const sdk::StridedLoop<1> rows(index.shape(), {grad.get()->dl.strides}, sdk::Order::kRowMajor);
  std::optional<ContiguousScratch> copy;
  if (rows.ndim() > 1) {
    copy.emplace(ctx, grad, grad.dtype());
    move(ctx, grad, copy->view());
    grad = copy->view();
  }
  RowSums call;
  call.index = index;
  call.positions = Strided<1>(
      sdk::StridedLoop<1>(index.shape(), {index.get()->dl.strides}, sdk::Order::kRowMajor));
  call.rows = args.num_weights;
  call.skip = args.padding_idx >= 0 ? args.padding_idx : -1;
  call.by_count = args.scale_grad_by_freq != 0;
  call.dtype = out.dtype();
  call.src = grad.raw();
  call.src_step = copy ? grad.size(-1) : rows.inner_stride(0);
  call.self = nullptr;
  call.self_step = 0;
  call.out = out.raw();
  call.out_step = out.stride(0);
  const int64_t width = out.size(1), from = grad.stride(-1), none = 0, to = out.stride(1);
  call.columns = Strided<3>(sdk::StridedLoop<3>(std::span(&width, 1), {&from, &none, &to}));
  sum_rows(ctx, call, faults_of(ctx, site, 0, args.num_weights));
}

}  // namespace

void register_rows(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&embedding_dense_backward>("sorted_rows", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
