// The QR factorization of small matrices by Householder reflections, each by a thread block in
// shared memory.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "backends/cuda/factorization/block.cuh"
#include "backends/cuda/factorization/launches.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/geqrf.h"
#include "mytorch/abi_ops/linalg_householder_product.h"
#include "mytorch/abi_ops/linalg_qr.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kRowShares = 4;  // lanes that share the rows of a column

// x := (I - tau v v^T) x for the columns of x from `first` to `last`. v has a 1 in row `at`, and
// below it column `at` of `vectors`.
template <class T>
__device__ void reflect(const BlockMatrix<T>& vectors, int m, int at, T tau,
                        const BlockMatrix<T>& x, int first, int last) {
  constexpr int kTogether = 32 / kRowShares;  // columns of a warp
  const int share = lane_of() % kRowShares;
  for (int c0 = first + warp_of() * kTogether; c0 < last; c0 += warps_of_block() * kTogether) {
    const int c = c0 + lane_of() / kRowShares;
    T sum = 0;
    for (int i = at + 1 + share; i < m && c < last; i += kRowShares)
      sum += vectors(i, at) * x(i, c);
    sum = warp_sum(sum, kRowShares);
    const T head = c < last ? x(at, c) : T(0);
    __syncwarp();
    if (c >= last) continue;
    const T factor = tau * (sum + head);
    for (int i = at + 1 + share; i < m; i += kRowShares) x(i, c) -= factor * vectors(i, at);
    if (share == 0) x(at, c) = head - factor;
  }
}

// Computes the reflection that makes column j zero below the diagonal. A warp calls it. Returns the
// factor of the elements below the diagonal.
template <class T>
__device__ T reflector(const BlockMatrix<T>& x, int m, int j, T* tau) {
  T most = 0;
  bool finite = true;
  for (int i = j + 1 + lane_of(); i < m; i += 32) {
    const T value = fabs(x(i, j));
    finite = finite && value * 0 == 0;
    most = value > most ? value : most;
  }
  most = warp_most(finite ? most : std::numeric_limits<T>::infinity());
  const T alpha = x(j, j);
  __syncwarp();
  if (most == 0) {
    if (lane_of() == 0) *tau = 0;
    return 0;
  }
  if (fabs(alpha) > most) most = fabs(alpha);
  T sum = 0;
  for (int i = j + 1 + lane_of(); i < m; i += 32) {
    const T value = x(i, j) / most;
    sum += value * value;
  }
  const T scaled = alpha / most;
  const T beta = -copysign(most * sqrt(warp_sum(sum) + scaled * scaled), alpha);
  if (lane_of() == 0) {
    *tau = (beta - alpha) / beta;
    x(j, j) = beta;
  }
  return T(1) / (alpha - beta);
}

template <class T>
__device__ void factorize(const BlockMatrix<T>& x, int m, int n, T* tau) {
  __shared__ T factor_of;
  for (int j = 0; j < m && j < n; ++j) {
    if (warp_of() == 0) {
      const T found = reflector(x, m, j, tau + j);
      if (lane_of() == 0) factor_of = found;
    }
    __syncthreads();
    const T factor = factor_of, own = tau[j];
    __syncthreads();
    if (own == 0) continue;  // the identity
    for (int i = j + 1 + static_cast<int>(threadIdx.x); i < m; i += static_cast<int>(blockDim.x)) {
      x(i, j) *= factor;
    }
    __syncthreads();
    reflect(x, m, j, own, x, j + 1, n);
    __syncthreads();
  }
}

// The first `columns` columns of the product of k reflections.
template <class T>
__device__ void form_product(const BlockMatrix<T>& vectors, int m, int k, const T* tau,
                             const BlockMatrix<T>& q, int columns) {
  each_element(m, columns, true, [&](int i, int j) { q(i, j) = static_cast<T>(i == j); });
  __syncthreads();
  for (int i = k; i-- > 0;) {
    // Columns before i are those of the identity, which have zeros where v has not.
    if (tau[i] != 0) reflect(vectors, m, i, tau[i], q, i, columns);
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    geqrf_blocks(Strided<3> batch, int m, int n, FirstMatrix<const T> from, FirstMatrix<T> to,
                 FirstMatrix<T> factors) {
  const BlockMatrix<T> x(shared_memory(), m);
  T* const tau = x.data + n * x.ld;
  const int k = m < n ? m : n;
  for (int64_t b = blockIdx.x; b < batch.numel; b += gridDim.x) {
    int64_t at[3];
    batch.offsets(b, at);
    load_block(x, m, n, from, at[0]);
    __syncthreads();
    factorize(x, m, n, tau);
    store_block(m, n, to, at[1], [&](int i, int j) { return x(i, j); });
    for (int i = static_cast<int>(threadIdx.x); i < k; i += static_cast<int>(blockDim.x)) {
      factors.data[at[2] + i * factors.row] = tau[i];
    }
    __syncthreads();
  }
}

// Q has `columns` columns, 0 if it is not wanted.
template <class T>
__global__ void __launch_bounds__(256)
    qr_blocks(Strided<3> batch, int m, int n, int columns, FirstMatrix<const T> from,
              FirstMatrix<T> q, int rows, FirstMatrix<T> r) {
  const BlockMatrix<T> x(shared_memory(), m), product(x.data + n * x.ld, m);
  T* const tau = product.data + columns * product.ld;
  const int k = m < n ? m : n;
  for (int64_t b = blockIdx.x; b < batch.numel; b += gridDim.x) {
    int64_t at[3];
    batch.offsets(b, at);
    load_block(x, m, n, from, at[0]);
    __syncthreads();
    factorize(x, m, n, tau);
    store_block(rows, n, r, at[2], [&](int i, int j) { return i <= j ? x(i, j) : T(0); });
    if (columns != 0) {
      form_product(x, m, k, tau, product, columns);
      store_block(m, columns, q, at[1], [&](int i, int j) { return product(i, j); });
    }
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    product_blocks(Strided<3> batch, int m, int n, int k, FirstMatrix<const T> from,
                   FirstMatrix<const T> factors, FirstMatrix<T> to) {
  const BlockMatrix<T> x(shared_memory(), m), product(x.data + n * x.ld, m);
  T* const tau = product.data + n * product.ld;
  for (int64_t b = blockIdx.x; b < batch.numel; b += gridDim.x) {
    int64_t at[3];
    batch.offsets(b, at);
    load_block(x, m, n, from, at[0]);
    for (int i = static_cast<int>(threadIdx.x); i < k; i += static_cast<int>(blockDim.x)) {
      tau[i] = factors.data[at[1] + i * factors.row];
    }
    __syncthreads();
    form_product(x, m, k, tau, product, n);
    store_block(m, n, to, at[2], [&](int i, int j) { return product(i, j); });
    __syncthreads();
  }
}

// ---- calls

// The shared memory for `columns` columns of m elements, and n factors.
int64_t shared_bytes(const TensorView& x, int64_t columns) {
  return (leading(x.size(-2)) * columns + x.size(-1)) * x.itemsize();
}
int threads_for(int64_t m, int64_t n) { return m <= 32 && n <= 32 ? 128 : 256; }

const char* geqrf_supports(const mt_args_geqrf& args) {
  const TensorView x = args.self;
  return size_reason(shared_bytes(x, x.size(-1)));
}

void geqrf(mt_ctx& ctx, const mt_args_geqrf& args) {
  const TensorView self = args.self, out = args.a, tau = args.tau;
  const int64_t m = self.size(-2), n = self.size(-1);
  const auto batch = batch_loop<3>(sdk::batch_shape(self), {self, out, tau}, {2, 2, 1});
  if (batch.numel == 0 || m == 0 || n == 0) return;
  visit_matrix_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_blocks(ctx, "geqrf", geqrf_blocks<T>, batch.numel, threads_for(m, n),
                  shared_bytes(self, n), batch, static_cast<int>(m), static_cast<int>(n),
                  FirstMatrix<const T>(self), FirstMatrix<T>(out), FirstMatrix<T>(tau, 1));
  });
}

int64_t columns_of_q(const mt_args_linalg_qr& args) {
  return args.mode[1] == 0 ? 0 : TensorView(args.Q).size(-1);  // none in mode "r"
}

const char* qr_supports(const mt_args_linalg_qr& args) {
  const TensorView x = args.A;
  return size_reason(shared_bytes(x, x.size(-1) + columns_of_q(args)));
}

void qr(mt_ctx& ctx, const mt_args_linalg_qr& args) {
  const TensorView a = args.A, r = args.R;
  const int64_t m = a.size(-2), n = a.size(-1), columns = columns_of_q(args);
  const bool wants_q = args.mode[1] != 0;
  const TensorView q = wants_q ? TensorView(args.Q) : r;
  const auto batch = batch_loop<3>(sdk::batch_shape(a), {a, q, r}, {2, 2, 2});
  if (batch.numel == 0 || m == 0) return;
  visit_matrix_type(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_blocks(ctx, "linalg_qr", qr_blocks<T>, batch.numel, threads_for(m, n + columns),
                  shared_bytes(a, n + columns), batch, static_cast<int>(m), static_cast<int>(n),
                  static_cast<int>(columns), FirstMatrix<const T>(a), FirstMatrix<T>(q),
                  static_cast<int>(r.size(-2)), FirstMatrix<T>(r));
  });
}

const char* product_supports(const mt_args_linalg_householder_product& args) {
  const TensorView x = args.input;
  return size_reason(shared_bytes(x, 2 * x.size(-1)));
}

void product_of_reflections(mt_ctx& ctx, const mt_args_linalg_householder_product& args) {
  const TensorView input = args.input, tau = args.tau, out = args.out;
  const int64_t m = input.size(-2), n = input.size(-1);
  const auto batch = batch_loop<3>(sdk::batch_shape(input), {input, tau, out}, {2, 1, 2});
  if (batch.numel == 0 || m == 0 || n == 0) return;
  visit_matrix_type(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_blocks(ctx, "linalg_householder_product", product_blocks<T>, batch.numel,
                  threads_for(m, n), shared_bytes(input, 2 * n), batch, static_cast<int>(m),
                  static_cast<int>(n), static_cast<int>(tau.size(-1)), FirstMatrix<const T>(input),
                  FirstMatrix<const T>(tau, 1), FirstMatrix<T>(out));
  });
}

}  // namespace

void register_qr(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&geqrf, &geqrf_supports>("blocks", kTakes, kBlocksPriority));
  kernels.push_back(sdk::kernel<&qr, &qr_supports>("blocks", kTakes, kBlocksPriority));
  kernels.push_back(
      sdk::kernel<&product_of_reflections, &product_supports>("blocks", kTakes, kBlocksPriority));
}

}  // namespace mytorch::cuda
