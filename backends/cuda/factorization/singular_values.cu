// The singular value decomposition of small matrices, each by a thread block in shared memory, by
// one-sided Jacobi rotations: in each round disjoint pairs of columns are made orthogonal at once
// (G. H. Golub, C. F. Van Loan, Matrix Computations, 4th edition, 8.6.3).
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backends/cuda/factorization/block.cuh"
#include "backends/cuda/factorization/launches.h"
#include "backends/cuda/factorization/passes.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/linalg_svd_forward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kMostSvdSweeps = 40;
constexpr int kShares = 8;  // lanes that share the rows of a pair of columns

// The shared memory of a block, for m >= n: the matrix, which becomes U with `columns` columns, V,
// and for each column of U its norm, a coefficient and its place in the order of singular values;
// and a vector.
template <class T>
struct SvdMemory {
  BlockMatrix<T> u, v;
  T *norms, *coefficients, *vector;
  int *ranks, *order;  // order[ranks[j]] = j

  __device__ SvdMemory(char* memory, int m, int n, int columns, bool vectors)
      : u(memory, m), v(u.data + columns * u.ld, n) {
    norms = vectors ? v.data + n * v.ld : v.data;
    coefficients = norms + columns;
    vector = coefficients + columns;
    ranks = reinterpret_cast<int*>(vector + m);
    order = ranks + columns;
  }
};
int64_t svd_bytes(int64_t m, int64_t n, int64_t columns, int64_t itemsize, bool vectors) {
  return (leading(m) * columns + (vectors ? leading(n) * n : 0) + 2 * columns + m) * itemsize +
         8 * columns;
}

// Makes the first n columns of u orthogonal. Returns false if it does not converge.
template <class T>
__device__ bool orthogonalize(const SvdMemory<T>& memory, int m, int n, bool vectors) {
  __shared__ int turned;
  const BlockMatrix<T>&u = memory.u, &v = memory.v;
  const int half = (n + 1) / 2, players = 2 * half;
  const int share = lane_of() % kShares, group = static_cast<int>(threadIdx.x) / kShares;
  const int groups = static_cast<int>(blockDim.x) / kShares;
  // The rounding of a rotation and of a sum of m products.
  const T tolerance = kEpsilon<T> * (T(1) + sqrt(static_cast<T>(m)) / 2);
  if (threadIdx.x == 0) turned = 0;
  for (int sweep = 0; sweep < kMostSvdSweeps; ++sweep) {
    for (int round = 0; round < players - 1; ++round) {
      __syncthreads();
      for (int k0 = 0; k0 < half; k0 += groups) {
        const int k = k0 + group;
        const Meeting pair(players, round, k < half ? k : 0);
        const bool meets = k < half && pair.q < n;
        T pp = 0, qq = 0, pq = 0;
        for (int i = share; meets && i < m; i += kShares) {
          const T x = u(i, pair.p), y = u(i, pair.q);
          pp += x * x, qq += y * y, pq += x * y;
        }
        pp = warp_sum(pp, kShares), qq = warp_sum(qq, kShares), pq = warp_sum(pq, kShares);
        // The direction of a column that is noise does not matter. (Magnitudes are near 1.)
        constexpr T kNoise = kEpsilon<T> / 128;
        if (!meets || !(pp > kNoise * kNoise) || !(qq > kNoise * kNoise) ||
            !(fabs(pq) > tolerance * sqrt(pp) * sqrt(qq))) {
          continue;
        }
        turned = 1;
        const Rotation<T> by(pp, pq, qq);
        for (int i = share; i < m; i += kShares) by.turn(u(i, pair.p), u(i, pair.q));
        for (int i = share; vectors && i < n; i += kShares) by.turn(v(i, pair.p), v(i, pair.q));
      }
    }
    __syncthreads();
    const bool done = turned == 0;
    __syncthreads();
    if (done) return true;
    if (threadIdx.x == 0) turned = 0;
  }
  return false;
}

// Replaces the columns order[from], ... of u by vectors that are orthogonal to those before them.
template <class T>
__device__ void complete(const SvdMemory<T>& memory, int m, int from, int columns) {
  __shared__ T squares;
  const BlockMatrix<T>& u = memory.u;
  int axis = 0;
  for (int c = from; c < columns && axis < m; ++axis) {
    for (int i = static_cast<int>(threadIdx.x); i < m; i += static_cast<int>(blockDim.x)) {
      memory.vector[i] = static_cast<T>(i == axis);
    }
    __syncthreads();
    for (int repeat = 0; repeat < 2; ++repeat) {  // once more, for the rounding of the first time
      for (int k = warp_of(); k < c; k += warps_of_block()) {
        T dot = 0;
        for (int i = lane_of(); i < m; i += 32) dot += u(i, memory.order[k]) * memory.vector[i];
        dot = warp_sum(dot);
        if (lane_of() == 0) memory.coefficients[k] = dot;
      }
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < m; i += static_cast<int>(blockDim.x)) {
        T value = memory.vector[i];
        for (int k = 0; k < c; ++k) value -= memory.coefficients[k] * u(i, memory.order[k]);
        memory.vector[i] = value;
      }
      __syncthreads();
    }
    if (warp_of() == 0) {
      T sum = 0;
      for (int i = lane_of(); i < m; i += 32) sum += memory.vector[i] * memory.vector[i];
      sum = warp_sum(sum);
      if (lane_of() == 0) squares = sum;
    }
    __syncthreads();
    const T norm = sqrt(squares);
    const bool fits = norm >= T(0.5) / static_cast<T>(m);  // else the axis lies in their span
    for (int i = static_cast<int>(threadIdx.x); fits && i < m; i += static_cast<int>(blockDim.x)) {
      u(i, memory.order[c]) = memory.vector[i] / norm;
    }
    c += fits ? 1 : 0;
    __syncthreads();
  }
}

// A = U S V^T for m >= n. `to_u` and `to_v` are (m, columns) and (n, n), a column for each singular
// value. Vectors of which `signs_of_u` tells have the signs of the convention.
template <class T>
__global__ void __launch_bounds__(256)
    svd_blocks(Strided<4> batch, int m, int n, int columns, bool vectors, bool signs_of_u,
               FirstMatrix<const T> from, FirstMatrix<T> to_u, FirstMatrix<T> to_values,
               FirstMatrix<T> to_v, MatrixFaults not_finite, MatrixFaults not_done) {
  const SvdMemory<T> memory(shared_memory(), m, n, columns, vectors);
  const BlockMatrix<T>&u = memory.u, &v = memory.v;
  for (int64_t b = blockIdx.x; b < batch.numel; b += gridDim.x) {
    int64_t at[4];
    batch.offsets(b, at);
    load_block(u, m, n, from, at[0]);
    __syncthreads();
    const int exponent = exponent_of(u, m, n, [](int, int) { return true; });
    const bool finite = exponent != kNoExponent;
    each_element(m, n, true,
                 [&](int i, int j) { u(i, j) = finite ? ldexp(u(i, j), -exponent) : T(0); });
    if (vectors) {
      each_element(n, n, true, [&](int i, int j) { v(i, j) = static_cast<T>(i == j); });
    }
    const bool done = orthogonalize(memory, m, n, vectors);
    if (threadIdx.x == 0) {
      if (!finite) not_finite.note(0, b);
      if (!done) not_done.note(0, b);
    }
    for (int j = warp_of(); j < n; j += warps_of_block()) {
      T sum = 0;
      for (int i = lane_of(); i < m; i += 32) sum += u(i, j) * u(i, j);
      sum = warp_sum(sum);
      if (lane_of() == 0) memory.norms[j] = sqrt(sum);
    }
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.x); j < columns; j += static_cast<int>(blockDim.x)) {
      int rank = j;  // of a column beyond n
      if (j < n) {
        const T own = memory.norms[j];
        rank = 0;
        for (int i = 0; i < n; ++i) {
          const T other = memory.norms[i];
          rank += other > own || (other == own && i < j) ? 1 : 0;
        }
        to_values.data[at[2] + rank * to_values.row] = finite ? ldexp(own, exponent) : own;
      }
      memory.ranks[j] = rank;
      memory.order[rank] = j;
    }
    __syncthreads();
    if (vectors) {
      // The directions of shorter columns are noise.
      const T least = memory.norms[memory.order[0]] * kEpsilon<T> / 64;
      int rank = 0;
      for (int j = 0; j < n; ++j) rank += memory.norms[j] > least ? 1 : 0;
      each_element(m, n, true, [&](int i, int j) {
        if (memory.ranks[j] < rank) u(i, j) /= memory.norms[j];
      });
      __syncthreads();
      complete(memory, m, rank, columns);
      for (int j = warp_of(); j < columns; j += warps_of_block()) {
        T sign = 1;
        if (j < n) {
          sign = signs_of_u ? sign_of_vector<T>(m, [&](int i) { return u(i, j); })
                            : sign_of_vector<T>(n, [&](int i) { return v(i, j); });
        }
        const int place = memory.ranks[j];
        for (int i = lane_of(); i < m; i += 32) {
          to_u.data[at[1] + i * to_u.row + place * to_u.column] = sign * u(i, j);
        }
        for (int i = lane_of(); j < n && i < n; i += 32) {
          to_v.data[at[3] + i * to_v.row + place * to_v.column] = sign * v(i, j);
        }
      }
    }
    __syncthreads();
  }
}

struct SvdSizes {
  int64_t m, n, columns;  // m >= n; columns of U
  bool transposed;

  explicit SvdSizes(const mt_args_linalg_svd_forward& args) {
    const TensorView x = args.self;
    m = std::max(x.size(-2), x.size(-1));
    n = std::min(x.size(-2), x.size(-1));
    transposed = x.size(-2) < x.size(-1);
    columns = args.compute_uv != 0 && args.full_matrices != 0 ? m : n;
  }
};

const char* svd_supports(const mt_args_linalg_svd_forward& args) {
  const SvdSizes sizes(args);
  if (sizes.n == 0) return nullptr;  // no matrix to decompose
  return size_reason(svd_bytes(sizes.m, sizes.n, sizes.columns, TensorView(args.self).itemsize(),
                               args.compute_uv != 0));
}

void svd(mt_ctx& ctx, const mt_args_linalg_svd_forward& args) {
  static const MatrixSites not_finite("linalg_svd", sdk::kNotFinite);
  static const MatrixSites not_done("linalg_svd", kNoConvergence);
  const TensorView self = args.self, values = args.S;
  const SvdSizes sizes(args);
  const bool vectors = args.compute_uv != 0;
  const TensorView u = vectors ? TensorView(args.U) : self;
  const TensorView vh = vectors ? TensorView(args.Vh) : self;
  if (sizes.n == 0) {
    if (vectors) set_identity(ctx, u), set_identity(ctx, vh);
    return;
  }
  const auto batch = batch_loop<4>(sdk::batch_shape(self), {self, u, values, vh}, {2, 2, 1, 2});
  if (batch.numel == 0) return;
  visit_matrix_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    FirstMatrix<const T> from(self);
    FirstMatrix<T> to_u(u), to_v = FirstMatrix<T>(vh).transposed();
    // A^T = V S U^T.
    Strided<4> loop = batch;
    if (sizes.transposed) {
      from = from.transposed();
      std::swap(to_u, to_v);
      for (int d = 0; d < loop.ndim; ++d) std::swap(loop.stride[d][1], loop.stride[d][3]);
    }
    const auto pairs = static_cast<int>((sizes.n + 1) / 2 * kShares);
    launch_blocks(
        ctx, "linalg_svd", svd_blocks<T>, batch.numel, std::clamp((pairs + 31) / 32 * 32, 32, 256),
        svd_bytes(sizes.m, sizes.n, sizes.columns, self.itemsize(), vectors), loop,
        static_cast<int>(sizes.m), static_cast<int>(sizes.n), static_cast<int>(sizes.columns),
        vectors, !sizes.transposed, from, to_u, FirstMatrix<T>(values, 1), to_v,
        not_finite.of(ctx, self), not_done.of(ctx, self));
  });
}

}  // namespace

void register_singular_values(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&svd, &svd_supports>("blocks", MT_TAKES_STRIDED, kBlocksPriority));
}

}  // namespace mytorch::cuda
