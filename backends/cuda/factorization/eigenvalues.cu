// Eigenvalues and eigenvectors of small symmetric matrices, each by a thread block in shared
// memory, by Jacobi's method: in each round disjoint pairs of rows and columns are rotated at once
// (G. H. Golub, C. F. Van Loan, Matrix Computations, 4th edition, 8.5).
#include <cmath>
#include <cstdint>

#include "backends/cuda/factorization/block.cuh"
#include "backends/cuda/factorization/launches.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/linalg_eigh_forward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kMostEighSweeps = 40;

// A pair of rows and its rotation. q is -1 if p has no partner.
template <class T>
struct Pair {
  int p, q;
  Rotation<T> by;
};

// The shared memory of a block: the matrix, its vectors, a pair for two rows, and the ranks.
template <class T>
struct EighMemory {
  BlockMatrix<T> a, v;
  Pair<T>* pairs;
  int* ranks;

  __device__ EighMemory(char* memory, int n, bool vectors) : a(memory, n), v(a.data + n * a.ld, n) {
    pairs = reinterpret_cast<Pair<T>*>(vectors ? v.data + n * v.ld : v.data);
    ranks = reinterpret_cast<int*>(pairs + (n + 1) / 2);
  }
};
int64_t eigh_bytes(int64_t n, int64_t itemsize, bool vectors) {
  const int64_t pair = itemsize == 4 ? sizeof(Pair<float>) : sizeof(Pair<double>);
  return leading(n) * n * itemsize * (vectors ? 2 : 1) + (n + 1) / 2 * pair + 4 * n;
}

// Makes the matrix diagonal. Returns false if it does not converge. Elements up to `tolerance`
// count as zero.
template <class T>
__device__ bool diagonalize(const EighMemory<T>& memory, int n, bool vectors, T tolerance) {
  __shared__ int turned;
  const BlockMatrix<T>&a = memory.a, &v = memory.v;
  Pair<T>* const pairs = memory.pairs;
  const int half = (n + 1) / 2, players = 2 * half;
  const int threads = static_cast<int>(blockDim.x), own = static_cast<int>(threadIdx.x);
  // Tasks go by in steps of the block's size, without divisions.
  const int k0 = own % half, l0 = own / half, k_step = threads % half, l_step = threads / half;
  const int i0 = own % n, j0 = own / n, i_step = threads % n, j_step = threads / n;
  if (own == 0) turned = 0;
  for (int sweep = 0; sweep < kMostEighSweeps; ++sweep) {
    for (int round = 0; round < players - 1; ++round) {
      __syncthreads();
      if (own < half) {
        const Meeting meeting(players, round, own);
        Pair<T> pair{meeting.p, meeting.q, {}};
        if (pair.q >= n) {
          pair.q = -1;
        } else if (const T between = a(pair.p, pair.q); fabs(between) > tolerance) {
          pair.by = Rotation<T>(a(pair.p, pair.p), between, a(pair.q, pair.q));
          turned = 1;
        }
        pairs[own] = pair;
      }
      __syncthreads();
      // A thread has the four elements at the crossing of two pairs.
      for (int k = k0, l = l0; l < half;) {
        const Pair<T> rows = pairs[k], columns = pairs[l];
        const bool second_row = rows.q >= 0, second_column = columns.q >= 0;
        if (k == l) {
          if (second_row && rows.by.s != 0) {
            const T change = rows.by.t * a(rows.p, rows.q);
            a(rows.p, rows.p) -= change;
            a(rows.q, rows.q) += change;
            a(rows.p, rows.q) = a(rows.q, rows.p) = 0;
          }
        } else if (rows.by.s != 0 || columns.by.s != 0) {
          T pp = a(rows.p, columns.p), pq = 0, qp = 0, qq = 0;
          if (second_column) pq = a(rows.p, columns.q);
          if (second_row) qp = a(rows.q, columns.p);
          if (second_row && second_column) qq = a(rows.q, columns.q);
          columns.by.turn(pp, pq);
          columns.by.turn(qp, qq);
          rows.by.turn(pp, qp);
          rows.by.turn(pq, qq);
          a(rows.p, columns.p) = pp;
          if (second_column) a(rows.p, columns.q) = pq;
          if (second_row) a(rows.q, columns.p) = qp;
          if (second_row && second_column) a(rows.q, columns.q) = qq;
        }
        k += k_step, l += l_step;
        if (k >= half) k -= half, ++l;
      }
      for (int i = i0, j = j0; vectors && j < half;) {
        const Pair<T> pair = pairs[j];
        if (pair.q >= 0 && pair.by.s != 0) pair.by.turn(v(i, pair.p), v(i, pair.q));
        i += i_step, j += j_step;
        if (i >= n) i -= n, ++j;
      }
    }
    __syncthreads();
    const bool done = turned == 0;
    __syncthreads();
    if (done) return true;
    if (own == 0) turned = 0;
  }
  return false;
}

template <class T>
__global__ void __launch_bounds__(256)
    eigh_blocks(Strided<3> batch, int n, bool upper, bool vectors, FirstMatrix<const T> from,
                FirstMatrix<T> to_values, FirstMatrix<T> to, MatrixFaults not_finite,
                MatrixFaults not_done) {
  const EighMemory<T> memory(shared_memory(), n, vectors);
  const BlockMatrix<T>&a = memory.a, &v = memory.v;
  for (int64_t b = blockIdx.x; b < batch.numel; b += gridDim.x) {
    int64_t at[3];
    batch.offsets(b, at);
    load_block(a, n, n, from, at[0]);
    __syncthreads();
    const int exponent =
        exponent_of(a, n, n, [&](int i, int j) { return upper ? i <= j : i >= j; });
    const bool finite = exponent != kNoExponent;
    // The given triangle, and its mirror image.
    each_element(n, n, true, [&](int i, int j) {
      if (upper ? i <= j : i >= j) {
        const T value = finite ? ldexp(a(i, j), -exponent) : T(0);
        a(i, j) = a(j, i) = value;
      }
      if (vectors) v(i, j) = static_cast<T>(i == j);
    });
    // Magnitudes are at most 1 now.
    const bool done = diagonalize(memory, n, vectors, kEpsilon<T> / 8);
    if (threadIdx.x == 0 && !finite) not_finite.note(0, b);
    if (threadIdx.x == 0 && !done) not_done.note(0, b);
    for (int j = static_cast<int>(threadIdx.x); j < n; j += static_cast<int>(blockDim.x)) {
      const T own = a(j, j);
      int rank = 0;
      for (int i = 0; i < n; ++i) rank += a(i, i) < own || (a(i, i) == own && i < j) ? 1 : 0;
      memory.ranks[j] = rank;
      to_values.data[at[1] + rank * to_values.row] = finite ? ldexp(own, exponent) : own;
    }
    __syncthreads();
    for (int j = warp_of(); vectors && j < n; j += warps_of_block()) {
      const T sign = sign_of_vector<T>(n, [&](int i) { return v(i, j); });
      for (int i = lane_of(); i < n; i += 32) {
        to.data[at[2] + i * to.row + memory.ranks[j] * to.column] = sign * v(i, j);
      }
    }
    __syncthreads();
  }
}

const char* eigh_supports(const mt_args_linalg_eigh_forward& args) {
  const TensorView x = args.self;
  const int64_t n = x.size(-1);
  if (n > 128) return "a matrix has more than 128 rows";
  return size_reason(eigh_bytes(n, x.itemsize(), args.compute_v != 0));
}

void eigh(mt_ctx& ctx, const mt_args_linalg_eigh_forward& args) {
  static const MatrixSites not_finite("linalg_eigh", sdk::kNotFinite);
  static const MatrixSites not_done("linalg_eigh", kNoConvergence);
  const TensorView self = args.self, values = args.eigenvalues;
  const bool vectors = args.compute_v != 0;
  const TensorView out = vectors ? TensorView(args.eigenvectors) : self;
  const auto batch = batch_loop<3>(sdk::batch_shape(self), {self, values, out}, {2, 1, 2});
  const int64_t n = self.size(-1);
  if (batch.numel == 0 || n == 0) return;
  const bool upper = args.UPLO[0] == 'U' || args.UPLO[0] == 'u';
  visit_matrix_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_blocks(ctx, "linalg_eigh", eigh_blocks<T>, batch.numel,
                  n <= 8    ? 32
                  : n <= 16 ? 64
                            : 256,
                  eigh_bytes(n, self.itemsize(), vectors), batch, static_cast<int>(n), upper,
                  vectors, FirstMatrix<const T>(self), FirstMatrix<T>(values, 1),
                  FirstMatrix<T>(out), not_finite.of(ctx, self), not_done.of(ctx, self));
  });
}

}  // namespace

void register_eigenvalues(KernelEntries& kernels) {
  kernels.push_back(
      sdk::kernel<&eigh, &eigh_supports>("blocks", MT_TAKES_STRIDED, kBlocksPriority));
}

}  // namespace mytorch::cuda
