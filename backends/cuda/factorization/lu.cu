// The LU factorization of small matrices, each by a thread block in shared memory, and the
// permutation that the exchanges of rows make.
#include <cmath>
#include <cstdint>
#include <limits>

#include "backends/cuda/factorization/block.cuh"
#include "backends/cuda/factorization/launches.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/linalg_lu_factor_ex.h"
#include "mytorch/abi_ops/linalg_lu_permutation.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// The row from j on with the largest magnitude in column j, the first of several. A warp calls it.
template <class T>
__device__ int pivot_row(const BlockMatrix<T>& x, int j, int m) {
  T most = -1;
  int row = m;
  for (int i = j + lane_of(); i < m; i += 32) {
    T value = fabs(x(i, j));
    if (i == j && value != value) value = std::numeric_limits<T>::infinity();  // a NaN stays
    if (value > most) most = value, row = i;
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const T other = __shfl_xor_sync(0xFFFFFFFFu, most, lanes);
    const int there = __shfl_xor_sync(0xFFFFFFFFu, row, lanes);
    if (other > most || (other == most && there < row)) most = other, row = there;
  }
  return row < m ? row : j;
}

// Returns the number of the first pivot that is 0.
template <class T>
__device__ int factorize(const BlockMatrix<T>& x, int m, int n, int32_t* pivots, int64_t step) {
  __shared__ int chosen;
  int info = 0;
  for (int j = 0; j < m && j < n; ++j) {
    if (warp_of() == 0) {
      const int row = pivot_row(x, j, m);
      if (lane_of() == 0) chosen = row, pivots[j * step] = row + 1;
    }
    __syncthreads();
    const int row = chosen;
    if (row != j) {
      for (int c = static_cast<int>(threadIdx.x); c < n; c += static_cast<int>(blockDim.x)) {
        const T other = x(row, c);
        x(row, c) = x(j, c), x(j, c) = other;
      }
    }
    __syncthreads();
    const T pivot = x(j, j);
    if (pivot == 0) {
      info = info == 0 ? j + 1 : info;
      continue;
    }
    for (int i = j + 1 + static_cast<int>(threadIdx.x); i < m; i += static_cast<int>(blockDim.x)) {
      x(i, j) /= pivot;
    }
    __syncthreads();
    for (int c = j + 1 + warp_of(); c < n; c += warps_of_block()) {
      const T factor = x(j, c);
      for (int i = j + 1 + lane_of(); i < m; i += 32) x(i, c) -= x(i, j) * factor;
    }
    __syncthreads();
  }
  return info;
}

template <class T>
__global__ void __launch_bounds__(256)
    lu_blocks(Strided<4> batch, int m, int n, FirstMatrix<const T> from, FirstMatrix<T> to,
              FirstMatrix<int32_t> pivots, int32_t* infos, MatrixFaults faults) {
  const BlockMatrix<T> x(shared_memory(), m);
  for (int64_t b = blockIdx.x; b < batch.numel; b += gridDim.x) {
    int64_t at[4];
    batch.offsets(b, at);
    load_block(x, m, n, from, at[0]);
    __syncthreads();
    const int info = factorize(x, m, n, pivots.data + at[2], pivots.row);
    store_block(m, n, to, at[1], [&](int i, int j) { return x(i, j); });
    if (threadIdx.x == 0) {
      infos[at[3]] = info;
      if (info != 0) faults.note(info - 1, b);
    }
    __syncthreads();
  }
}

const char* lu_factor_supports(const mt_args_linalg_lu_factor_ex& args) {
  return size_reason(matrix_bytes(args.A));
}

void lu_factor(mt_ctx& ctx, const mt_args_linalg_lu_factor_ex& args) {
  static const MatrixSites sites("linalg_lu_factor_ex", kSingular);
  const TensorView a = args.A, out = args.LU, pivots = args.pivots, info = args.info;
  const auto batch = batch_loop<4>(sdk::batch_shape(a), {a, out, pivots, info}, {2, 2, 1, 0});
  if (batch.numel == 0) return;
  const MatrixFaults faults = args.check_errors != 0 ? sites.of(ctx, a) : MatrixFaults();
  visit_matrix_type(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int m = static_cast<int>(a.size(-2)), n = static_cast<int>(a.size(-1));
    launch_blocks(ctx, "linalg_lu_factor_ex", lu_blocks<T>, batch.numel,
                  m <= 32 && n <= 32 ? 128 : 256, matrix_bytes(a), batch, m, n,
                  FirstMatrix<const T>(a), FirstMatrix<T>(out), FirstMatrix<int32_t>(pivots, 1),
                  info.data<int32_t>(), faults);
  });
}

// ---- the permutation

// One thread makes the exchanges, in shared memory if the rows fit.
__global__ void __launch_bounds__(256)
    exchange_rows(Strided<2> batch, int64_t exchanges, int64_t rows, bool fits,
                  FirstMatrix<const int32_t> pivots, FirstMatrix<int64_t> to, Faults faults) {
  auto* const order = reinterpret_cast<int32_t*>(shared_memory());
  for (int64_t b = blockIdx.x; b < batch.numel; b += gridDim.x) {
    int64_t at[2];
    batch.offsets(b, at);
    int64_t* const out = to.data + at[1];
    for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
      fits ? static_cast<void>(order[i] = static_cast<int32_t>(i))
           : static_cast<void>(out[i * to.row] = i);
    }
    __syncthreads();
    for (int64_t i = 0; i < exchanges && threadIdx.x == 0; ++i) {
      const int64_t pivot = pivots.data[at[0] + i * pivots.row], row = pivot - 1;
      if (row < 0 || row >= rows) {
        faults.note(pivot);
      } else if (fits) {
        const int32_t other = order[row];
        order[row] = order[i], order[i] = other;
      } else {
        const int64_t other = out[row * to.row];
        out[row * to.row] = out[i * to.row], out[i * to.row] = other;
      }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; fits && i < rows; i += blockDim.x) out[i * to.row] = order[i];
    __syncthreads();
  }
}

void permutation(mt_ctx& ctx, const mt_args_linalg_lu_permutation& args) {
  static const uint32_t site = fault_site("linalg_lu_permutation", kWrongPivot);
  const TensorView pivots = args.pivots, out = args.out;
  const auto batch = batch_loop<2>(sdk::batch_shape(out, 1), {pivots, out}, {1, 1});
  const int64_t rows = out.size(-1), bytes = rows * static_cast<int64_t>(sizeof(int32_t));
  if (batch.numel == 0 || rows == 0) return;
  const bool fits = bytes <= kMostShared;
  launch_blocks(ctx, "linalg_lu_permutation", exchange_rows, batch.numel, 256, fits ? bytes : 0,
                batch, pivots.size(-1), rows, fits, FirstMatrix<const int32_t>(pivots, 1),
                FirstMatrix<int64_t>(out, 1), faults_of(ctx, site, 0, rows));
}

}  // namespace

void register_lu(KernelEntries& kernels) {
  kernels.push_back(
      sdk::kernel<&lu_factor, &lu_factor_supports>("blocks", MT_TAKES_STRIDED, kBlocksPriority));
  kernels.push_back(sdk::kernel<&permutation>("exchanges", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
