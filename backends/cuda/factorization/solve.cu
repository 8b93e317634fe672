// Solves with small triangular matrices and LU factorizations. A thread block has the matrix in
// shared memory; a warp has a vector of the right side in registers.
#include <cstdint>

#include "backends/cuda/factorization/block.cuh"
#include "backends/cuda/factorization/launches.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/linalg_lu_solve.h"
#include "mytorch/abi_ops/linalg_solve_triangular.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// A triangle of the matrix, or its transpose.
struct Triangle {
  bool upper, transposed, unit;
};

// Replaces the vector by the solution. Lane l has elements l, l + 32, ...
template <class T, int kParts>
__device__ __forceinline__ void solve_triangle(const BlockMatrix<T>& a, int n, Triangle triangle,
                                               T (&x)[kParts]) {
  const bool backward = triangle.upper != triangle.transposed;
  for (int step = 0; step < n; ++step) {
    const int k = backward ? n - 1 - step : step;
    T solved = 0;
#pragma unroll
    for (int part = 0; part < kParts; ++part) solved = part == k / 32 ? x[part] : solved;
    solved = __shfl_sync(0xFFFFFFFFu, solved, k % 32);
    if (!triangle.unit) solved /= a(k, k);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int i = 32 * part + lane_of();
      if (i >= n) continue;
      if (i == k) x[part] = solved;
      if (backward ? i < k : i > k) x[part] -= (triangle.transposed ? a(k, i) : a(i, k)) * solved;
    }
  }
}

// The vectors of the right side and of the solution: `row` is between elements, `column` between
// vectors.
template <class T>
struct Vectors {
  FirstMatrix<const T> from;
  FirstMatrix<T> to;
  int64_t count;

  template <int kParts>
  __device__ void load(int64_t v, int n, int64_t at, const int32_t* order, T (&x)[kParts]) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int i = 32 * part + lane_of();
      if (i >= n) continue;
      x[part] = from.data[at + (order == nullptr ? i : order[i]) * from.row + v * from.column];
    }
  }
  template <int kParts>
  __device__ void store(int64_t v, int n, int64_t at, const int32_t* order, T (&x)[kParts]) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int i = 32 * part + lane_of();
      if (i >= n) continue;
      to.data[at + (order == nullptr ? i : order[i]) * to.row + v * to.column] = x[part];
    }
  }
};

template <class T, int kParts>
__global__ void __launch_bounds__(128)
    triangular_blocks(Strided<3> batch, int n, Triangle triangle, FirstMatrix<const T> from,
                      Vectors<T> vectors) {
  const BlockMatrix<T> a(shared_memory(), n);
  for (int64_t b = blockIdx.x; b < batch.numel; b += gridDim.x) {
    int64_t at[3];
    batch.offsets(b, at);
    load_block(a, n, n, from, at[0]);
    __syncthreads();
    for (int64_t v = int64_t{blockIdx.y} * warps_of_block() + warp_of(); v < vectors.count;
         v += int64_t{gridDim.y} * warps_of_block()) {
      T x[kParts] = {};
      vectors.load(v, n, at[1], nullptr, x);
      solve_triangle(a, n, triangle, x);
      vectors.store(v, n, at[2], nullptr, x);
    }
    __syncthreads();
  }
}

// `transposed`: the matrix whose factorization is given, transposed, is solved with.
template <class T, int kParts>
__global__ void __launch_bounds__(128)
    lu_solve_blocks(Strided<4> batch, int n, bool transposed, FirstMatrix<const T> from,
                    FirstMatrix<const int32_t> pivots, Vectors<T> vectors, Faults faults) {
  const BlockMatrix<T> a(shared_memory(), n);
  auto* const order = reinterpret_cast<int32_t*>(a.data + n * a.ld);
  for (int64_t b = blockIdx.x; b < batch.numel; b += gridDim.x) {
    int64_t at[4];
    batch.offsets(b, at);
    load_block(a, n, n, from, at[0]);
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
      order[i] = i;
    }
    __syncthreads();
    for (int i = 0; i < n && threadIdx.x == 0; ++i) {
      const int32_t pivot = pivots.data[at[1] + i * pivots.row];
      if (pivot < 1 || pivot > n) {
        faults.note(pivot);
        continue;
      }
      const int32_t other = order[pivot - 1];
      order[pivot - 1] = order[i], order[i] = other;
    }
    __syncthreads();
    for (int64_t v = int64_t{blockIdx.y} * warps_of_block() + warp_of(); v < vectors.count;
         v += int64_t{gridDim.y} * warps_of_block()) {
      T x[kParts] = {};
      vectors.load(v, n, at[2], transposed ? nullptr : order, x);
      // P L U, or U^T L^T P^T.
      solve_triangle(a, n, {transposed, transposed, !transposed}, x);
      solve_triangle(a, n, {!transposed, transposed, transposed}, x);
      vectors.store(v, n, at[3], transposed ? order : nullptr, x);
    }
    __syncthreads();
  }
}

// Calls f(parts) with the constant number of parts of 32 elements.
template <class F>
void with_parts(int64_t n, F&& f) {
  if (n <= 32) return f(std::integral_constant<int, 1>());
  if (n <= 64) return f(std::integral_constant<int, 2>());
  f(std::integral_constant<int, 4>());
}

int64_t shared_bytes(const TensorView& x) {
  return (leading(x.size(-1)) * x.itemsize() + static_cast<int64_t>(sizeof(int32_t))) * x.size(-1);
}
const char* matrix_reason(const TensorView& x) {
  if (x.size(-1) > 128) return "a matrix has more than 128 rows";
  return size_reason(shared_bytes(x));
}

// A right side whose matrices X A = B are solved with as A^T X^T = B^T has rows as vectors.
template <class T>
Vectors<T> vectors_of(const TensorView& from, const TensorView& to, bool left) {
  FirstMatrix<const T> b(from);
  FirstMatrix<T> x(to);
  if (!left) b = b.transposed(), x = x.transposed();
  return {b, x, to.size(left ? -1 : -2)};
}

template <class... Params, class... Args>
void launch_vectors(mt_ctx& ctx, const char* name, void (*kernel)(Params...), int64_t count,
                    int64_t vectors, int64_t shared, const Args&... args) {
  Grid grid;
  const int64_t wanted = 16 * properties(ctx.device.index).multiprocessors;
  const int64_t most = std::max<int64_t>(1, (wanted + count - 1) / count);
  grid.blocks = dim3(static_cast<unsigned>(std::min<int64_t>(count, 1 << 20)),
                     static_cast<unsigned>(std::min<int64_t>({(vectors + 3) / 4, most, 65535})));
  grid.threads = dim3(128);
  grid.shared = static_cast<size_t>(shared);
  allow_shared(ctx, reinterpret_cast<const void*>(kernel), grid.shared);
  launch(ctx, name, kernel, grid, args...);
}

const char* triangular_supports(const mt_args_linalg_solve_triangular& args) {
  return matrix_reason(args.self);
}

void triangular(mt_ctx& ctx, const mt_args_linalg_solve_triangular& args) {
  const TensorView self = args.self, right = args.B, out = args.out;
  if (out.numel() == 0) return;
  const auto batch = batch_loop<3>(sdk::batch_shape(out), {self, right, out}, {2, 2, 2});
  const bool left = args.left != 0;
  const Triangle triangle{args.upper != 0, !left, args.unitriangular != 0};
  visit_matrix_type(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto vectors = vectors_of<T>(right, out, left);
    const int n = static_cast<int>(self.size(-1));
    with_parts(n, [&](auto parts) {
      launch_vectors(ctx, "linalg_solve_triangular", triangular_blocks<T, parts()>, batch.numel,
                     vectors.count, shared_bytes(self), batch, n, triangle,
                     FirstMatrix<const T>(self), vectors);
    });
  });
}

const char* lu_supports(const mt_args_linalg_lu_solve& args) { return matrix_reason(args.LU); }

void lu_solve(mt_ctx& ctx, const mt_args_linalg_lu_solve& args) {
  static const uint32_t site = fault_site("linalg_lu_solve", kWrongPivot);
  const TensorView factors = args.LU, pivots = args.pivots, right = args.B, out = args.out;
  if (out.numel() == 0) return;
  const auto batch =
      batch_loop<4>(sdk::batch_shape(out), {factors, pivots, right, out}, {2, 1, 2, 2});
  const bool left = args.left != 0, transposed = left == (args.adjoint != 0);
  const Faults faults = faults_of(ctx, site, 0, factors.size(-1));
  visit_matrix_type(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto vectors = vectors_of<T>(right, out, left);
    const int n = static_cast<int>(factors.size(-1));
    with_parts(n, [&](auto parts) {
      launch_vectors(ctx, "linalg_lu_solve", lu_solve_blocks<T, parts()>, batch.numel,
                     vectors.count, shared_bytes(factors), batch, n, transposed,
                     FirstMatrix<const T>(factors), FirstMatrix<const int32_t>(pivots, 1), vectors,
                     faults);
    });
  });
}

}  // namespace

void register_solve(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(
      sdk::kernel<&triangular, &triangular_supports>("blocks", kTakes, kBlocksPriority));
  kernels.push_back(sdk::kernel<&lu_solve, &lu_supports>("blocks", kTakes, kBlocksPriority));
}

}  // namespace mytorch::cuda
