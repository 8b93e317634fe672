#include <cmath>
#include <limits>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/factorization/block.cuh"
#include "backends/cuda/factorization/passes.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// ---- numbers, real and complex

template <class T>
__device__ bool is_finite(T x) {
  if constexpr (is_complex_number<T>) {
    return is_finite(x.x) && is_finite(x.y);
  } else {
    return x * 0 == 0;
  }
}
template <class T>
__device__ bool is_nan(T x) {
  if constexpr (is_complex_number<T>) {
    return is_nan(x.x) || is_nan(x.y);
  } else {
    return x != x;
  }
}
template <class T>
__device__ RealOf<T> magnitude(T x) {
  if constexpr (is_complex_number<T>) {
    return hypot(x.x, x.y);
  } else {
    return fabs(x);
  }
}
template <class T>
__device__ T conjugate_of(T x) {
  if constexpr (is_complex_number<T>) x.y = -x.y;
  return x;
}
template <class T>
__device__ T product_of(T a, T b) {
  if constexpr (is_complex_number<T>) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
  } else {
    return a * b;
  }
}
// Whether a number needs a factor of magnitude 1 to become real and positive, and that factor.
template <class T>
__device__ bool needs_turn(T x) {
  if constexpr (is_complex_number<T>) {
    return magnitude(x) != 0;
  } else {
    return x < 0;
  }
}
template <class T>
__device__ T turn_of(T x) {
  if constexpr (is_complex_number<T>) {
    const RealOf<T> length = magnitude(x);
    return {x.x / length, x.y / -length};
  } else {
    return -1;
  }
}

// ---- kernels

template <class T>
__global__ void __launch_bounds__(256) find_nan_pivots(int64_t count, int64_t n, const T* factors,
                                                       int32_t* infos, MatrixFaults faults) {
  __shared__ int first;
  for (int64_t b = blockIdx.x; b < count; b += gridDim.x) {
    if (threadIdx.x == 0) first = infos[b] != 0 ? infos[b] : INT32_MAX;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const T pivot = factors[b * n * n + i * n + i];
      if (is_nan(pivot)) atomicMin(&first, static_cast<int>(i) + 1);
    }
    __syncthreads();
    if (threadIdx.x == 0 && first != INT32_MAX) {
      infos[b] = first;
      faults.note(first, b);
    }
    __syncthreads();
  }
}

// A block for each column.
template <class T>
__global__ void __launch_bounds__(256)
    clear_triangles(int64_t count, int64_t n, bool upper, T* factors, const int32_t* infos) {
  for (int64_t c = blockIdx.x; c < count * n; c += gridDim.x) {
    const int64_t b = c / n, j = c - b * n;
    T* const column = factors + c * n;
    const bool failed = infos[b] != 0;
    const int64_t first = failed || !upper ? 0 : j + 1, last = failed || upper ? n : j;
    const T value = number<T>(failed ? std::numeric_limits<RealOf<T>>::quiet_NaN() : 0);
    for (int64_t i = first + threadIdx.x; i < last; i += blockDim.x) column[i] = value;
  }
}

// `m` is the number of rows of `from`.
template <class T>
__global__ void upper_elements(Strided<1> batch, int64_t m, int64_t rows, int64_t n, const T* from,
                               FirstMatrix<T> to) {
  for (int64_t e = first_element(); e < batch.numel * rows * n; e += grid_step()) {
    const int64_t b = e / (rows * n), i = e % rows, j = e / rows % n;
    int64_t at[1];
    batch.offsets(b, at);
    to.data[at[0] + i * to.row + j * to.column] = i <= j ? from[b * m * n + j * m + i] : T{};
  }
}

__global__ void note_nonzero(const int32_t* infos, int64_t count, int32_t less,
                             MatrixFaults faults) {
  for (int64_t b = first_element(); b < count; b += grid_step()) {
    if (infos[b] != 0) faults.note(infos[b] - less, b);
  }
}

template <class T>
__global__ void find_not_finite(int64_t count, int64_t m, int64_t n, Part part, const T* x,
                                int32_t* found, MatrixFaults faults) {
  for (int64_t e = first_element(); e < count * m * n; e += grid_step()) {
    if (is_finite(x[e])) continue;
    const int64_t b = e / (m * n), i = e % m, j = e / m % n;
    if (part == Part::kAll || (part == Part::kUpper ? i <= j : i >= j)) {
      found[b] = 1;
      faults.note(0, b);
    }
  }
}
template <class T>
__global__ void clear_found(int64_t count, int64_t numel, T* x, const int32_t* found) {
  for (int64_t b = blockIdx.y; b < count; b += gridDim.y) {
    if (found[b] == 0) continue;
    for (int64_t e = first_element(); e < numel; e += grid_step()) x[b * numel + e] = T{};
  }
}

// A warp for each vector.
template <class T>
__global__ void __launch_bounds__(256)
    turn_vectors(int64_t batch, int64_t count, T* vectors, int64_t rows, int64_t columns,
                 T* partners, int64_t partner_rows, int64_t partner_columns) {
  const int64_t warps = int64_t{gridDim.x} * warps_of_block();
  for (int64_t c = int64_t{blockIdx.x} * warps_of_block() + warp_of(); c < batch * count;
       c += warps) {
    const int64_t b = c / count, j = c % count;
    T* const own = vectors + (b * columns + j) * rows;
    const int first =
        first_large<RealOf<T>>(static_cast<int>(rows), [&](int i) { return magnitude(own[i]); });
    if (first == rows || !needs_turn(own[first])) continue;
    const T factor = turn_of(own[first]);
    __syncwarp();  // all lanes have read the element that one of them changes
    for (int64_t i = lane_of(); i < rows; i += 32) own[i] = product_of(own[i], factor);
    if (partners == nullptr) continue;
    T* const other = partners + (b * partner_columns + j) * partner_rows;
    for (int64_t i = lane_of(); i < partner_rows; i += 32) {
      other[i] = product_of(other[i], conjugate_of(factor));
    }
  }
}

template <class T>
__global__ void conjugate_elements(int64_t numel, T* x) {
  for (int64_t e = first_element(); e < numel; e += grid_step()) x[e] = conjugate_of(x[e]);
}

__global__ void clamp_pivots(const int32_t* from, int64_t count, int64_t rows, int32_t* to,
                             Faults faults) {
  for (int64_t i = first_element(); i < count; i += grid_step()) {
    const int32_t pivot = from[i];
    if (pivot < 1 || pivot > rows) faults.note(pivot);
    to[i] = pivot < 1 ? 1 : pivot > rows ? static_cast<int32_t>(rows) : pivot;
  }
}

__global__ void addresses(char* first, int64_t step, int64_t count, void** to) {
  for (int64_t i = first_element(); i < count; i += grid_step()) to[i] = first + i * step;
}

}  // namespace

void finish_cholesky(mt_ctx& ctx, const Columns& factors, bool upper, int32_t* infos,
                     const MatrixFaults& faults) {
  const int64_t n = factors.rows(), count = factors.count();
  visit_any_matrix_type(factors.view().dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    Grid grid;
    grid.blocks = dim3(static_cast<unsigned>(std::min<int64_t>(count, 65535)));
    grid.threads = dim3(256);
    launch(ctx, "find_nan_pivots", find_nan_pivots<T>, grid, count, n,
           static_cast<const T*>(factors.at<T>(0)), infos, faults);
    grid.blocks = dim3(static_cast<unsigned>(std::min<int64_t>(count * n, 1 << 20)));
    launch(ctx, "clear_triangles", clear_triangles<T>, grid, count, n, upper, factors.at<T>(0),
           static_cast<const int32_t*>(infos));
  });
}

void copy_upper(mt_ctx& ctx, const Columns& from, const TensorView& to) {
  if (to.numel() == 0) return;
  const auto batch = batch_loop<1>(sdk::batch_shape(to), {to}, {2});
  visit_any_matrix_type(to.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "upper_elements", upper_elements<T>, grid_for(ctx, to.numel(), 256), batch,
           from.rows(), to.size(-2), to.size(-1), static_cast<const T*>(from.at<T>(0)),
           FirstMatrix<T>(to));
  });
}

void note_infos(mt_ctx& ctx, const int32_t* infos, int64_t count, int32_t less,
                const MatrixFaults& faults) {
  launch(ctx, "note_nonzero", note_nonzero, grid_for(ctx, count, 256), infos, count, less, faults);
}

void refuse_not_finite(mt_ctx& ctx, const Columns& matrices, Part part,
                       const MatrixFaults& faults) {
  const int64_t m = matrices.rows(), n = matrices.columns(), count = matrices.count();
  int32_t* const found = scratch<int32_t>(ctx, count);
  use_device(ctx);
  CUDA(cudaMemsetAsync(found, 0, static_cast<size_t>(count) * sizeof(int32_t), stream_of(ctx)));
  visit_any_matrix_type(matrices.view().dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "find_not_finite", find_not_finite<T>, grid_for(ctx, count * m * n, 256), count, m,
           n, part, static_cast<const T*>(matrices.at<T>(0)), found, faults);
    Grid grid = grid_for(ctx, m * n, 256, 1);
    grid.blocks.y = static_cast<unsigned>(std::min<int64_t>(count, 1024));
    grid.blocks.x = std::min(grid.blocks.x, std::max(1u, 1024 / grid.blocks.y));
    launch(ctx, "clear_found", clear_found<T>, grid, count, m * n, matrices.at<T>(0),
           static_cast<const int32_t*>(found));
  });
}

void fix_phases(mt_ctx& ctx, const Columns& vectors, int64_t count, const Columns* partners) {
  visit_any_matrix_type(vectors.view().dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "turn_vectors", turn_vectors<T>, grid_for(ctx, vectors.count() * count * 32, 256),
           vectors.count(), count, vectors.at<T>(0), vectors.rows(), vectors.columns(),
           partners == nullptr ? nullptr : partners->at<T>(0),
           partners == nullptr ? int64_t{0} : partners->rows(),
           partners == nullptr ? int64_t{0} : partners->columns());
  });
}

void conjugate(mt_ctx& ctx, const Columns& matrices) {
  const int64_t numel = matrices.count() * matrices.rows() * matrices.columns();
  if (numel == 0) return;
  visit_any_matrix_type(matrices.view().dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_complex_number<T>) {
      launch(ctx, "conjugate_elements", conjugate_elements<T>, grid_for(ctx, numel, 256), numel,
             matrices.at<T>(0));
    }
  });
}

void check_pivots(mt_ctx& ctx, const int32_t* from, int64_t count, int64_t rows, int32_t* to,
                  const Faults& faults) {
  launch(ctx, "clamp_pivots", clamp_pivots, grid_for(ctx, count, 256), from, count, rows, to,
         faults);
}

void write_addresses(mt_ctx& ctx, const void* first, int64_t step, int64_t count, void** to) {
  launch(ctx, "addresses", addresses, grid_for(ctx, count, 256),
         static_cast<char*>(const_cast<void*>(first)), step, count, to);
}

}  // namespace mytorch::cuda
