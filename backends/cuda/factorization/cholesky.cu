// The Cholesky factorization of small matrices, each by a thread block in shared memory.
#include <cmath>
#include <cstdint>
#include <limits>

#include "backends/cuda/factorization/block.cuh"
#include "backends/cuda/factorization/launches.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/linalg_cholesky_ex.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// Factorizes the lower triangle. Returns the order of the first leading minor that is not positive.
template <class T>
__device__ int factorize(const BlockMatrix<T>& x, int n) {
  for (int j = 0; j < n; ++j) {
    const T pivot = x(j, j);
    if (!(pivot > 0)) return j + 1;
    const T root = sqrt(pivot);
    __syncthreads();  // all have read the pivot
    for (int i = j + static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
      x(i, j) = i == j ? root : x(i, j) / root;
    }
    __syncthreads();
    for (int k = j + 1 + warp_of(); k < n; k += warps_of_block()) {
      const T factor = x(k, j);
      for (int i = k + lane_of(); i < n; i += 32) x(i, k) -= x(i, j) * factor;
    }
    __syncthreads();
  }
  return 0;
}

// `from` and `to` are transposed for an upper triangle.
template <class T>
__global__ void __launch_bounds__(256)
    cholesky_blocks(Strided<3> batch, int n, FirstMatrix<const T> from, FirstMatrix<T> to,
                    int32_t* infos, MatrixFaults faults) {
  const BlockMatrix<T> x(shared_memory(), n);
  for (int64_t b = blockIdx.x; b < batch.numel; b += gridDim.x) {
    int64_t at[3];
    batch.offsets(b, at);
    load_block(x, n, n, from, at[0]);
    __syncthreads();
    const int order = factorize(x, n);
    store_block(n, n, to, at[1], [&](int i, int j) {
      return order != 0 ? std::numeric_limits<T>::quiet_NaN() : i < j ? T(0) : x(i, j);
    });
    if (threadIdx.x == 0) {
      infos[at[2]] = order;
      if (order != 0) faults.note(order, b);
    }
    __syncthreads();
  }
}

const char* cholesky_supports(const mt_args_linalg_cholesky_ex& args) {
  return size_reason(matrix_bytes(args.self));
}

void cholesky(mt_ctx& ctx, const mt_args_linalg_cholesky_ex& args) {
  static const MatrixSites sites("linalg_cholesky_ex", kNotPositive);
  const TensorView self = args.self, out = args.L, info = args.info;
  const auto batch = batch_loop<3>(sdk::batch_shape(self), {self, out, info}, {2, 2, 0});
  if (batch.numel == 0) return;
  const MatrixFaults faults = args.check_errors != 0 ? sites.of(ctx, self) : MatrixFaults();
  visit_matrix_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    FirstMatrix<const T> from(self);
    FirstMatrix<T> to(out);
    if (args.upper != 0) from = from.transposed(), to = to.transposed();
    const int n = static_cast<int>(self.size(-1));
    launch_blocks(ctx, "linalg_cholesky_ex", cholesky_blocks<T>, batch.numel, n <= 32 ? 128 : 256,
                  matrix_bytes(self), batch, n, from, to, info.data<int32_t>(), faults);
  });
}

}  // namespace

void register_cholesky(KernelEntries& kernels) {
  kernels.push_back(
      sdk::kernel<&cholesky, &cholesky_supports>("blocks", MT_TAKES_STRIDED, kBlocksPriority));
}

}  // namespace mytorch::cuda
