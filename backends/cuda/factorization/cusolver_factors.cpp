// Factorizations and solves of large matrices, and of all complex ones, by cuSOLVER and cuBLAS.
// Batches of real matrices up to kBatched rows are one call, others one call for each matrix.
#if __has_include(<cusolverDn.h>)

#include <algorithm>
#include <cstdint>

#include "backends/cuda/factorization/passes.h"
#include "backends/cuda/factorization/solver.h"
#include "backends/cuda/factorization/transposed.h"
#include "backends/cuda/registry.h"
#include "mytorch/abi_ops/geqrf.h"
#include "mytorch/abi_ops/linalg_cholesky_ex.h"
#include "mytorch/abi_ops/linalg_householder_product.h"
#include "mytorch/abi_ops/linalg_lu_factor_ex.h"
#include "mytorch/abi_ops/linalg_lu_solve.h"
#include "mytorch/abi_ops/linalg_qr.h"
#include "mytorch/abi_ops/linalg_solve_triangular.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int64_t kBatched = 256;

template <class T>
bool is_batched(const Columns& x) {
  return !is_complex_number<T> && x.count() > 1 && x.rows() <= kBatched;
}

// The library's array of the addresses of matrices.
template <class T>
T** addresses_of(mt_ctx& ctx, const Columns& x) {
  T** const to = scratch<T*>(ctx, x.count());
  write_addresses(ctx, x.at<T>(0), x.rows() * x.columns() * static_cast<int64_t>(sizeof(T)),
                  x.count(), reinterpret_cast<void**>(to));
  return to;
}

int32_t* infos_of(mt_ctx& ctx, int64_t count) { return scratch<int32_t>(ctx, count); }

// ---- Cholesky

template <bool kComplex>
const char* cholesky_supports(const mt_args_linalg_cholesky_ex& args) {
  return library_reason(args.self, kComplex);
}

void cholesky(mt_ctx& ctx, const mt_args_linalg_cholesky_ex& args) {
  static const MatrixSites sites("linalg_cholesky_ex", kNotPositive);
  const TensorView self = args.self;
  const auto batch = sdk::batch_shape(self);
  Columns to(ctx, args.L, batch), infos(ctx, args.info, batch, 0);
  if (to.count() == 0) return;
  if (to.rows() == 0) return clear(ctx, args.info);
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  const int n = static_cast<int>(to.rows()), count = static_cast<int>(to.count());
  const cublasFillMode_t part = args.upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
  move(ctx, self, to.view());
  visit_any_matrix_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (is_batched<T>(to)) {
      MYTORCH_SOLVE(T, potrfBatched, handle, part, n, addresses_of<T>(ctx, to), n, infos.at<int>(0),
                    count);
      return;
    }
    int size = 0;
    MYTORCH_SOLVE(T, potrf_bufferSize, handle, part, n, to.at<T>(0), n, &size);
    T* const work = scratch<T>(ctx, size);
    for (int64_t b = 0; b < count; ++b) {
      MYTORCH_SOLVE(T, potrf, handle, part, n, to.at<T>(b), n, work, size, infos.at<int>(b));
    }
  });
  finish_cholesky(ctx, to, args.upper != 0, infos.at<int32_t>(0),
                  args.check_errors != 0 ? sites.of(ctx, self) : MatrixFaults());
  to.store();
  infos.store();
}

// ---- LU

template <bool kComplex>
const char* lu_supports(const mt_args_linalg_lu_factor_ex& args) {
  return library_reason(args.A, kComplex);
}

void lu(mt_ctx& ctx, const mt_args_linalg_lu_factor_ex& args) {
  static const MatrixSites sites("linalg_lu_factor_ex", kSingular);
  const TensorView a = args.A;
  const auto batch = sdk::batch_shape(a);
  Columns to(ctx, args.LU, batch), pivots(ctx, args.pivots, batch, 1),
      infos(ctx, args.info, batch, 0);
  if (to.count() == 0) return;
  if (a.numel() == 0) return clear(ctx, args.info);
  const int m = static_cast<int>(to.rows()), n = static_cast<int>(to.columns());
  const int count = static_cast<int>(to.count());
  move(ctx, a, to.view());
  visit_any_matrix_type(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (is_batched<T>(to) && m == n) {
      MYTORCH_BLAS(T, getrfBatched, blas_handle_of(ctx), n, addresses_of<T>(ctx, to), n,
                   pivots.at<int>(0), infos.at<int>(0), count);
      return;
    }
    const cusolverDnHandle_t handle = solver_handle_of(ctx);
    int size = 0;
    MYTORCH_SOLVE(T, getrf_bufferSize, handle, m, n, to.at<T>(0), m, &size);
    T* const work = scratch<T>(ctx, size);
    for (int64_t b = 0; b < count; ++b) {
      MYTORCH_SOLVE(T, getrf, handle, m, n, to.at<T>(b), m, work, pivots.at<int>(b),
                    infos.at<int>(b));
    }
  });
  if (args.check_errors != 0) {
    note_infos(ctx, infos.at<int32_t>(0), count, 1, sites.of(ctx, a));
  }
  to.store();
  pivots.store();
  infos.store();
}

template <bool kComplex>
const char* lu_solve_supports(const mt_args_linalg_lu_solve& args) {
  const char* reason = library_reason(args.LU, kComplex);
  return reason != nullptr ? reason : library_reason(args.out, kComplex);
}

void lu_solve(mt_ctx& ctx, const mt_args_linalg_lu_solve& args) {
  static const uint32_t site = fault_site("linalg_lu_solve", kWrongPivot);
  const TensorView factors = args.LU, right = args.B, out = args.out;
  if (out.numel() == 0) return;
  const auto batch = sdk::batch_shape(out);
  // X A = B is A^T X^T = B^T, and X A^H = B is A conj(X^T) = conj(B^T).
  const bool left = args.left != 0, adjoint = args.adjoint != 0, conjugated = !left && adjoint;
  const bool complex = sdk::is_complex(out.dtype());
  const cublasOperation_t op = left != adjoint   ? CUBLAS_OP_N
                               : left && complex ? CUBLAS_OP_C
                                                 : CUBLAS_OP_T;
  const Transposed flipped_out(out), flipped_right(right);
  Columns lu(ctx, factors, batch), given(ctx, args.pivots, batch, 1),
      x(ctx, left ? out : flipped_out.view(), batch);
  const int n = static_cast<int>(lu.rows()), columns = static_cast<int>(x.columns());
  const int count = static_cast<int>(x.count());
  lu.load();
  given.load();
  int32_t* const pivots = scratch<int32_t>(ctx, int64_t{count} * n);
  check_pivots(ctx, given.at<int32_t>(0), int64_t{count} * n, n, pivots,
               faults_of(ctx, site, 0, n));
  move(ctx, left ? right : flipped_right.view(), x.view());
  if (conjugated) conjugate(ctx, x);
  visit_any_matrix_type(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (is_batched<T>(lu)) {
      int info = 0;
      MYTORCH_BLAS(T, getrsBatched, blas_handle_of(ctx), op, n, columns, addresses_of<T>(ctx, lu),
                   n, pivots, addresses_of<T>(ctx, x), n, &info, count);
      return;
    }
    const cusolverDnHandle_t handle = solver_handle_of(ctx);
    int32_t* const info = infos_of(ctx, 1);
    for (int64_t b = 0; b < count; ++b) {
      MYTORCH_SOLVE(T, getrs, handle, op, n, columns, lu.at<T>(b), n, pivots + b * n, x.at<T>(b), n,
                    info);
    }
  });
  if (conjugated) conjugate(ctx, x);
  x.store();
}

// ---- triangular solves

template <bool kComplex>
const char* triangular_supports(const mt_args_linalg_solve_triangular& args) {
  const char* reason = library_reason(args.self, kComplex);
  return reason != nullptr ? reason : library_reason(args.out, kComplex);
}

void triangular(mt_ctx& ctx, const mt_args_linalg_solve_triangular& args) {
  const TensorView self = args.self, right = args.B, out = args.out;
  if (out.numel() == 0) return;
  const auto batch = sdk::batch_shape(out);
  // A row-major triangle is the other triangle by columns, so of real ones neither is copied.
  const bool by_rows =
      !sdk::is_complex(self.dtype()) && self.stride(-1) == 1 && self.stride(-2) != 1;
  const Transposed flipped(self);
  Columns a(ctx, by_rows ? flipped.view() : self, batch), x(ctx, out, batch);
  a.load();
  move(ctx, right, x.view());
  const cublasHandle_t handle = blas_handle_of(ctx);
  const cublasSideMode_t side = args.left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
  const cublasFillMode_t part =
      (args.upper != 0) != by_rows ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
  const cublasOperation_t op = by_rows ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasDiagType_t unit = args.unitriangular ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
  const int m = static_cast<int>(x.rows()), n = static_cast<int>(x.columns());
  const int lda = static_cast<int>(a.rows());
  visit_any_matrix_type(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T one = number<T>(1);
    if (is_batched<T>(a)) {
      MYTORCH_BLAS(T, trsmBatched, handle, side, part, op, unit, m, n, &one,
                   addresses_of<T>(ctx, a), lda, addresses_of<T>(ctx, x), m,
                   static_cast<int>(x.count()));
      return;
    }
    for (int64_t b = 0; b < x.count(); ++b) {
      MYTORCH_BLAS(T, trsm, handle, side, part, op, unit, m, n, &one, a.at<T>(b), lda, x.at<T>(b),
                   m);
    }
  });
  x.store();
}

// ---- QR

template <class T>
void factorize(mt_ctx& ctx, const Columns& x, T* tau, int64_t step) {
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  const int m = static_cast<int>(x.rows()), n = static_cast<int>(x.columns());
  int size = 0;
  MYTORCH_SOLVE(T, geqrf_bufferSize, handle, m, n, x.at<T>(0), m, &size);
  T* const work = scratch<T>(ctx, size);
  int32_t* const info = infos_of(ctx, 1);
  for (int64_t b = 0; b < x.count(); ++b) {
    MYTORCH_SOLVE(T, geqrf, handle, m, n, x.at<T>(b), m, tau + b * step, work, size, info);
  }
}

template <class T>
void form_product(mt_ctx& ctx, const Columns& x, int64_t k, const T* tau) {
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  const int m = static_cast<int>(x.rows()), n = static_cast<int>(x.columns());
  int size = 0;
  MYTORCH_SOLVE_EITHER(T, orgqr_bufferSize, ungqr_bufferSize, handle, m, n, static_cast<int>(k),
                       x.at<T>(0), m, tau, &size);
  T* const work = scratch<T>(ctx, size);
  int32_t* const info = infos_of(ctx, 1);
  for (int64_t b = 0; b < x.count(); ++b) {
    MYTORCH_SOLVE_EITHER(T, orgqr, ungqr, handle, m, n, static_cast<int>(k), x.at<T>(b), m,
                         tau + b * k, work, size, info);
  }
}

template <bool kComplex>
const char* geqrf_supports(const mt_args_geqrf& args) {
  return library_reason(args.self, kComplex);
}

void geqrf(mt_ctx& ctx, const mt_args_geqrf& args) {
  const TensorView self = args.self;
  if (self.numel() == 0) return;
  const auto batch = sdk::batch_shape(self);
  Columns x(ctx, args.a, batch), tau(ctx, args.tau, batch, 1);
  move(ctx, self, x.view());
  visit_any_matrix_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    factorize<T>(ctx, x, tau.at<T>(0), tau.rows());
  });
  x.store();
  tau.store();
}

template <bool kComplex>
const char* qr_supports(const mt_args_linalg_qr& args) {
  if (const char* reason = library_reason(args.A, kComplex)) return reason;
  return args.mode[1] == 0 ? nullptr : library_reason(args.Q, kComplex);
}

void qr(mt_ctx& ctx, const mt_args_linalg_qr& args) {
  const TensorView a = args.A, r = args.R;
  const auto batch = sdk::batch_shape(a);
  const bool wants_q = args.mode[1] != 0;  // not "r"
  if (a.numel() == 0) {
    if (wants_q) set_identity(ctx, args.Q);
    return;
  }
  Columns x(ctx, a, batch, 2, true);
  x.load();
  const int64_t k = std::min(x.rows(), x.columns());
  visit_any_matrix_type(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const tau = scratch<T>(ctx, x.count() * k);
    factorize<T>(ctx, x, tau, k);
    copy_upper(ctx, x, r);
    if (!wants_q) return;
    Columns q(ctx, args.Q, batch);
    const int64_t shared = std::min(q.columns(), x.columns());
    move(ctx, Narrowed(x.view(), shared).view(), Narrowed(q.view(), shared).view());
    form_product<T>(ctx, q, k, tau);
    q.store();
  });
}

template <bool kComplex>
const char* product_supports(const mt_args_linalg_householder_product& args) {
  return library_reason(args.input, kComplex);
}

void product_of_reflections(mt_ctx& ctx, const mt_args_linalg_householder_product& args) {
  const TensorView input = args.input, out = args.out;
  if (out.numel() == 0) return;
  const auto batch = sdk::batch_shape(input);
  Columns x(ctx, out, batch), tau(ctx, args.tau, batch, 1);
  if (tau.rows() == 0) return set_identity(ctx, out);
  move(ctx, input, x.view());
  tau.load();
  visit_any_matrix_type(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    form_product<T>(ctx, x, tau.rows(), tau.at<T>(0));
  });
  x.store();
}

template <bool kComplex>
void register_factors(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED | (kComplex ? uint32_t{MT_TAKES_COMPLEX} : 0);
  const char* const name = kComplex ? "cusolver_complex" : "cusolver";
  const auto add = [&](auto entry) { kernels.push_back(entry); };
  add(sdk::kernel<&cholesky, &cholesky_supports<kComplex>>(name, kTakes));
  add(sdk::kernel<&lu, &lu_supports<kComplex>>(name, kTakes));
  add(sdk::kernel<&lu_solve, &lu_solve_supports<kComplex>>(name, kTakes));
  add(sdk::kernel<&triangular, &triangular_supports<kComplex>>(
      kComplex ? "cublas_complex" : "cublas", kTakes));
  add(sdk::kernel<&geqrf, &geqrf_supports<kComplex>>(name, kTakes));
  add(sdk::kernel<&qr, &qr_supports<kComplex>>(name, kTakes));
  add(sdk::kernel<&product_of_reflections, &product_supports<kComplex>>(name, kTakes));
}

}  // namespace

void register_cusolver_factors(KernelEntries& kernels) { register_factors<false>(kernels); }

void register_cusolver_complex(KernelEntries& kernels) {
  register_factors<true>(kernels);
  register_complex_spectra(kernels);
}

}  // namespace mytorch::cuda

#endif  // cusolver_absent.cpp otherwise
