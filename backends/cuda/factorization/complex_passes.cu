#include <algorithm>
#include <limits>
#include <type_traits>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/factorization/block.cuh"
#include "backends/cuda/factorization/complex_passes.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda::complex_passes {
namespace {

using sdk::TensorView;

// Complex numbers are float2 and double2.
template <class T>
using Part_ = decltype(T{}.x);

template <class F>
void visit_complex(mt_dtype dtype, F&& f) {
  if (dtype.bits == 128) return f(sdk::TypeTag<double2>{});
  f(sdk::TypeTag<float2>{});
}

template <class T>
__device__ bool is_finite(T z) {
  return z.x * 0 == 0 && z.y * 0 == 0;
}
template <class T>
__device__ T product(T a, T b) {
  T z;
  z.x = a.x * b.x - a.y * b.y;
  z.y = a.x * b.y + a.y * b.x;
  return z;
}

template <class T>
__global__ void identity_elements(Strided<1> batch, int64_t m, int64_t n, FirstMatrix<T> to) {
  for (int64_t e = first_element(); e < batch.numel * m * n; e += grid_step()) {
    int64_t at[1];
    batch.offsets(e / (m * n), at);
    const int64_t i = e % m, j = e / m % n;
    T one{};
    one.x = i == j ? 1 : 0;
    to.data[at[0] + i * to.row + j * to.column] = one;
  }
}

template <class T>
__global__ void __launch_bounds__(256) find_nan_pivots(int64_t count, int64_t n, const T* factors,
                                                       int32_t* infos, MatrixFaults faults) {
  __shared__ int first;
  for (int64_t b = blockIdx.x; b < count; b += gridDim.x) {
    if (threadIdx.x == 0) first = infos[b] != 0 ? infos[b] : INT32_MAX;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const T pivot = factors[b * n * n + i * n + i];
      if (pivot.x != pivot.x || pivot.y != pivot.y) atomicMin(&first, static_cast<int>(i) + 1);
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
    T value{};
    if (failed) value.x = std::numeric_limits<Part_<T>>::quiet_NaN();
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
  for (int64_t e = first_element(); e < count * numel; e += grid_step()) {
    if (found[e / numel] != 0) x[e] = T{};
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
    const auto size = [&](int i) { return hypot(own[i].x, own[i].y); };
    const int first = first_large<Part_<T>>(static_cast<int>(rows), size);
    if (first == rows || size(first) == 0) continue;
    T factor = own[first];
    const Part_<T> length = size(first);
    factor.x /= length;
    factor.y /= -length;
    __syncwarp();
    for (int64_t i = lane_of(); i < rows; i += 32) own[i] = product(own[i], factor);
    if (partners == nullptr) continue;
    T* const other = partners + (b * partner_columns + j) * partner_rows;
    factor.y = -factor.y;
    for (int64_t i = lane_of(); i < partner_rows; i += 32) other[i] = product(other[i], factor);
  }
}

template <class T>
__global__ void conjugate_elements(int64_t numel, T* x) {
  for (int64_t e = first_element(); e < numel; e += grid_step()) x[e].y = -x[e].y;
}

}  // namespace

void set_identity(mt_ctx& ctx, const TensorView& to) {
  if (to.numel() == 0) return;
  const auto batch = batch_loop<1>(sdk::batch_shape(to), {to}, {2});
  visit_complex(to.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "identity_elements", identity_elements<T>, grid_for(ctx, to.numel(), 256), batch,
           to.size(-2), to.size(-1), FirstMatrix<T>(to));
  });
}

void finish_cholesky(mt_ctx& ctx, const Columns& factors, bool upper, int32_t* infos,
                     const MatrixFaults& faults) {
  const int64_t n = factors.rows(), count = factors.count();
  visit_complex(factors.view().dtype(), [&](auto tag) {
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
  visit_complex(to.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "upper_elements", upper_elements<T>, grid_for(ctx, to.numel(), 256), batch,
           from.rows(), to.size(-2), to.size(-1), static_cast<const T*>(from.at<T>(0)),
           FirstMatrix<T>(to));
  });
}

void refuse_not_finite(mt_ctx& ctx, const Columns& matrices, Part part,
                       const MatrixFaults& faults) {
  const int64_t m = matrices.rows(), n = matrices.columns(), count = matrices.count();
  int32_t* const found = scratch<int32_t>(ctx, count);
  use_device(ctx);
  CUDA(cudaMemsetAsync(found, 0, static_cast<size_t>(count) * sizeof(int32_t), stream_of(ctx)));
  visit_complex(matrices.view().dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Grid grid = grid_for(ctx, count * m * n, 256);
    launch(ctx, "find_not_finite", find_not_finite<T>, grid, count, m, n, part,
           static_cast<const T*>(matrices.at<T>(0)), found, faults);
    launch(ctx, "clear_found", clear_found<T>, grid, count, m * n, matrices.at<T>(0),
           static_cast<const int32_t*>(found));
  });
}

void fix_phases(mt_ctx& ctx, const Columns& vectors, int64_t count, const Columns* partners) {
  visit_complex(vectors.view().dtype(), [&](auto tag) {
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
  visit_complex(matrices.view().dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "conjugate_elements", conjugate_elements<T>, grid_for(ctx, numel, 256), numel,
           matrices.at<T>(0));
  });
}

}  // namespace mytorch::cuda::complex_passes
