// Factorizations and solves of complex matrices by cuSOLVER and cuBLAS, one call for each matrix.
#if __has_include(<cusolverDn.h>)

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "backends/cuda/factorization/complex_passes.h"
#include "backends/cuda/factorization/solver.h"
#include "backends/cuda/factorization/transposed.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/capture.h"
#include "mytorch/abi_ops/geqrf.h"
#include "mytorch/abi_ops/linalg_cholesky_ex.h"
#include "mytorch/abi_ops/linalg_eigh_forward.h"
#include "mytorch/abi_ops/linalg_householder_product.h"
#include "mytorch/abi_ops/linalg_lu_factor_ex.h"
#include "mytorch/abi_ops/linalg_lu_solve.h"
#include "mytorch/abi_ops/linalg_qr.h"
#include "mytorch/abi_ops/linalg_solve_triangular.h"
#include "mytorch/abi_ops/linalg_svd_forward.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

const char* reason_for(const TensorView& x) {
  return sdk::is_complex(x.dtype()) ? library_reason(x) : "this kernel is for complex matrices";
}

template <class F>
void visit_complex_type(mt_dtype dtype, F&& f) {
  if (dtype.bits == 128) return f(sdk::TypeTag<cuDoubleComplex>{});
  f(sdk::TypeTag<cuComplex>{});
}
template <class T>
using RealPart = std::conditional_t<std::is_same_v<T, cuComplex>, float, double>;

// ---- Cholesky, LU, triangular solves

const char* complex_cholesky_supports(const mt_args_linalg_cholesky_ex& args) {
  return reason_for(args.self);
}

void complex_cholesky(mt_ctx& ctx, const mt_args_linalg_cholesky_ex& args) {
  static const MatrixSites sites("linalg_cholesky_ex", kNotPositive);
  const TensorView self = args.self;
  const auto batch = sdk::batch_shape(self);
  Columns to(ctx, args.L, batch), infos(ctx, args.info, batch, 0);
  if (to.count() == 0) return;
  if (to.rows() == 0) return clear(ctx, args.info);
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  const int n = static_cast<int>(to.rows());
  const cublasFillMode_t part = args.upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
  move(ctx, self, to.view());
  visit_complex_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    int size = 0;
    MYTORCH_SOLVE_COMPLEX(T, potrf_bufferSize, handle, part, n, to.at<T>(0), n, &size);
    T* const work = scratch<T>(ctx, size);
    for (int64_t b = 0; b < to.count(); ++b) {
      MYTORCH_SOLVE_COMPLEX(T, potrf, handle, part, n, to.at<T>(b), n, work, size,
                            infos.at<int>(b));
    }
  });
  complex_passes::finish_cholesky(ctx, to, args.upper != 0, infos.at<int32_t>(0),
                                  args.check_errors != 0 ? sites.of(ctx, self) : MatrixFaults());
  to.store();
  infos.store();
}

const char* complex_lu_supports(const mt_args_linalg_lu_factor_ex& args) {
  return reason_for(args.A);
}

void complex_lu(mt_ctx& ctx, const mt_args_linalg_lu_factor_ex& args) {
  static const MatrixSites sites("linalg_lu_factor_ex", kSingular);
  const TensorView a = args.A;
  const auto batch = sdk::batch_shape(a);
  Columns to(ctx, args.LU, batch), pivots(ctx, args.pivots, batch, 1),
      infos(ctx, args.info, batch, 0);
  if (to.count() == 0) return;
  if (a.numel() == 0) return clear(ctx, args.info);
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  const int m = static_cast<int>(to.rows()), n = static_cast<int>(to.columns());
  move(ctx, a, to.view());
  visit_complex_type(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    int size = 0;
    MYTORCH_SOLVE_COMPLEX(T, getrf_bufferSize, handle, m, n, to.at<T>(0), m, &size);
    T* const work = scratch<T>(ctx, size);
    for (int64_t b = 0; b < to.count(); ++b) {
      MYTORCH_SOLVE_COMPLEX(T, getrf, handle, m, n, to.at<T>(b), m, work, pivots.at<int>(b),
                            infos.at<int>(b));
    }
  });
  if (args.check_errors != 0) {
    note_infos(ctx, infos.at<int32_t>(0), to.count(), 1, sites.of(ctx, a));
  }
  to.store();
  pivots.store();
  infos.store();
}

const char* complex_lu_solve_supports(const mt_args_linalg_lu_solve& args) {
  const char* reason = reason_for(args.LU);
  return reason != nullptr ? reason : reason_for(args.out);
}

void complex_lu_solve(mt_ctx& ctx, const mt_args_linalg_lu_solve& args) {
  static const uint32_t site = fault_site("linalg_lu_solve", kWrongPivot);
  const TensorView factors = args.LU, right = args.B, out = args.out;
  if (out.numel() == 0) return;
  const auto batch = sdk::batch_shape(out);
  // X A = B is A^T X^T = B^T, and X A^H = B is A conj(X^T) = conj(B^T).
  const bool left = args.left != 0, adjoint = args.adjoint != 0, conjugated = !left && adjoint;
  const cublasOperation_t op = left == adjoint ? (left ? CUBLAS_OP_C : CUBLAS_OP_T) : CUBLAS_OP_N;
  const Transposed flipped_out(out), flipped_right(right);
  Columns lu(ctx, factors, batch), given(ctx, args.pivots, batch, 1),
      x(ctx, left ? out : flipped_out.view(), batch);
  const int n = static_cast<int>(lu.rows()), columns = static_cast<int>(x.columns());
  const int64_t count = x.count();
  lu.load();
  given.load();
  int32_t* const pivots = scratch<int32_t>(ctx, count * n);
  check_pivots(ctx, given.at<int32_t>(0), count * n, n, pivots, faults_of(ctx, site, 0, n));
  move(ctx, left ? right : flipped_right.view(), x.view());
  if (conjugated) complex_passes::conjugate(ctx, x);
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  int32_t* const info = scratch<int32_t>(ctx, 1);
  visit_complex_type(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t b = 0; b < count; ++b) {
      MYTORCH_SOLVE_COMPLEX(T, getrs, handle, op, n, columns, lu.at<T>(b), n, pivots + b * n,
                            x.at<T>(b), n, info);
    }
  });
  if (conjugated) complex_passes::conjugate(ctx, x);
  x.store();
}

const char* complex_triangular_supports(const mt_args_linalg_solve_triangular& args) {
  const char* reason = reason_for(args.self);
  return reason != nullptr ? reason : reason_for(args.out);
}

void complex_triangular(mt_ctx& ctx, const mt_args_linalg_solve_triangular& args) {
  const TensorView self = args.self, out = args.out;
  if (out.numel() == 0) return;
  const auto batch = sdk::batch_shape(out);
  Columns a(ctx, self, batch), x(ctx, out, batch);
  a.load();
  move(ctx, args.B, x.view());
  const cublasHandle_t handle = blas_handle_of(ctx);
  const cublasSideMode_t side = args.left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
  const cublasFillMode_t part = args.upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
  const cublasDiagType_t unit = args.unitriangular ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
  const int m = static_cast<int>(x.rows()), n = static_cast<int>(x.columns());
  const int lda = static_cast<int>(a.rows());
  visit_complex_type(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T one{};
    one.x = 1;
    for (int64_t b = 0; b < x.count(); ++b) {
      check(for_complex_type<T>(cublasCtrsm, cublasZtrsm)(handle, side, part, CUBLAS_OP_N, unit, m,
                                                          n, &one, a.at<T>(b), lda, x.at<T>(b), m),
            "cublas trsm");
    }
  });
  x.store();
}

// ---- QR

template <class T>
void complex_factorize(mt_ctx& ctx, const Columns& x, T* tau, int64_t step) {
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  const int m = static_cast<int>(x.rows()), n = static_cast<int>(x.columns());
  int size = 0;
  MYTORCH_SOLVE_COMPLEX(T, geqrf_bufferSize, handle, m, n, x.at<T>(0), m, &size);
  T* const work = scratch<T>(ctx, size);
  int32_t* const info = scratch<int32_t>(ctx, 1);
  for (int64_t b = 0; b < x.count(); ++b) {
    MYTORCH_SOLVE_COMPLEX(T, geqrf, handle, m, n, x.at<T>(b), m, tau + b * step, work, size, info);
  }
}

template <class T>
void complex_form_product(mt_ctx& ctx, const Columns& x, int64_t k, const T* tau) {
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  const int m = static_cast<int>(x.rows()), n = static_cast<int>(x.columns());
  const int reflections = static_cast<int>(k);
  int size = 0;
  MYTORCH_SOLVE_COMPLEX(T, ungqr_bufferSize, handle, m, n, reflections, x.at<T>(0), m, tau, &size);
  T* const work = scratch<T>(ctx, size);
  int32_t* const info = scratch<int32_t>(ctx, 1);
  for (int64_t b = 0; b < x.count(); ++b) {
    MYTORCH_SOLVE_COMPLEX(T, ungqr, handle, m, n, reflections, x.at<T>(b), m, tau + b * k, work,
                          size, info);
  }
}

const char* complex_geqrf_supports(const mt_args_geqrf& args) { return reason_for(args.self); }

void complex_geqrf(mt_ctx& ctx, const mt_args_geqrf& args) {
  const TensorView self = args.self;
  if (self.numel() == 0) return;
  const auto batch = sdk::batch_shape(self);
  Columns x(ctx, args.a, batch), tau(ctx, args.tau, batch, 1);
  move(ctx, self, x.view());
  visit_complex_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    complex_factorize<T>(ctx, x, tau.at<T>(0), tau.rows());
  });
  x.store();
  tau.store();
}

const char* complex_qr_supports(const mt_args_linalg_qr& args) {
  if (const char* reason = reason_for(args.A)) return reason;
  return args.mode[1] == 0 ? nullptr : reason_for(args.Q);
}

void complex_qr(mt_ctx& ctx, const mt_args_linalg_qr& args) {
  const TensorView a = args.A;
  const auto batch = sdk::batch_shape(a);
  const bool wants_q = args.mode[1] != 0;  // not "r"
  if (a.numel() == 0) {
    if (wants_q) complex_passes::set_identity(ctx, args.Q);
    return;
  }
  Columns x(ctx, a, batch, 2, true);
  x.load();
  const int64_t k = std::min(x.rows(), x.columns());
  visit_complex_type(a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const tau = scratch<T>(ctx, x.count() * k);
    complex_factorize<T>(ctx, x, tau, k);
    complex_passes::copy_upper(ctx, x, args.R);
    if (!wants_q) return;
    Columns q(ctx, args.Q, batch);
    const int64_t shared = std::min(q.columns(), x.columns());
    move(ctx, Narrowed(x.view(), shared).view(), Narrowed(q.view(), shared).view());
    complex_form_product<T>(ctx, q, k, tau);
    q.store();
  });
}

const char* complex_product_supports(const mt_args_linalg_householder_product& args) {
  return reason_for(args.input);
}

void complex_product_of_reflections(mt_ctx& ctx, const mt_args_linalg_householder_product& args) {
  const TensorView input = args.input, out = args.out;
  if (out.numel() == 0) return;
  const auto batch = sdk::batch_shape(input);
  Columns x(ctx, out, batch), tau(ctx, args.tau, batch, 1);
  if (tau.rows() == 0) return complex_passes::set_identity(ctx, out);
  move(ctx, input, x.view());
  tau.load();
  visit_complex_type(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    complex_form_product<T>(ctx, x, tau.rows(), tau.at<T>(0));
  });
  x.store();
}

// ---- eigenvalues, singular values

const char* complex_eigh_supports(const mt_args_linalg_eigh_forward& args) {
  return reason_for(args.self);
}

void complex_eigh(mt_ctx& ctx, const mt_args_linalg_eigh_forward& args) {
  static const MatrixSites not_finite("linalg_eigh", sdk::kNotFinite);
  static const MatrixSites not_done("linalg_eigh", kNoConvergence);
  const TensorView self = args.self;
  if (self.numel() == 0) return;
  check_not_captured(ctx, "linalg_eigh", "results of its first steps on the host");
  const auto batch = sdk::batch_shape(self);
  const bool upper = args.UPLO[0] == 'U' || args.UPLO[0] == 'u', vectors = args.compute_v != 0;
  Columns x(ctx, vectors ? TensorView(args.eigenvectors) : self, batch, 2, !vectors);
  Columns values(ctx, args.eigenvalues, batch, 1);
  move(ctx, self, x.view());
  complex_passes::refuse_not_finite(ctx, x, upper ? Part::kUpper : Part::kLower,
                                    not_finite.of(ctx, self));
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  const cusolverEigMode_t mode = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  const cublasFillMode_t part = upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
  const int64_t n = x.rows();
  int32_t* const infos = scratch<int32_t>(ctx, x.count());
  visit_complex_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = RealPart<T>;
    const bool single = std::is_same_v<T, cuComplex>;
    const cudaDataType type = single ? CUDA_C_32F : CUDA_C_64F;
    const cudaDataType real = single ? CUDA_R_32F : CUDA_R_64F;
    size_t on_device = 0, on_host = 0;
    check(solver().cusolverDnXsyevd_bufferSize(handle, solver_params(), mode, part, n, type,
                                               x.at<T>(0), n, real, values.at<Real>(0), type,
                                               &on_device, &on_host),
          "cusolverDnXsyevd_bufferSize");
    void* const work = scratch_bytes(ctx, std::max<size_t>(on_device, 1));
    // The routine returns when it has read the host's memory for the last time.
    std::vector<char> host(on_host);
    for (int64_t b = 0; b < x.count(); ++b) {
      check(solver().cusolverDnXsyevd(handle, solver_params(), mode, part, n, type, x.at<T>(b), n,
                                      real, values.at<Real>(b), type, work, on_device, host.data(),
                                      on_host, infos + b),
            "cusolverDnXsyevd");
    }
    if (on_host != 0) CUDA(cudaStreamSynchronize(stream_of(ctx)));
  });
  note_infos(ctx, infos, x.count(), 0, not_done.of(ctx, self));
  values.store();
  if (!vectors) return;
  complex_passes::fix_phases(ctx, x, n, nullptr);
  x.store();
}

const char* complex_svd_supports(const mt_args_linalg_svd_forward& args) {
  if (const char* reason = reason_for(args.self)) return reason;
  if (args.compute_uv == 0) return nullptr;
  const char* reason = reason_for(args.U);
  return reason != nullptr ? reason : reason_for(args.Vh);
}

void complex_svd(mt_ctx& ctx, const mt_args_linalg_svd_forward& args) {
  static const MatrixSites not_finite("linalg_svd", sdk::kNotFinite);
  static const MatrixSites not_done("linalg_svd", kNoConvergence);
  const TensorView self = args.self;
  const bool vectors = args.compute_uv != 0;
  if (self.numel() == 0) {
    if (!vectors) return;
    complex_passes::set_identity(ctx, args.U);
    return complex_passes::set_identity(ctx, args.Vh);
  }
  check_not_captured(ctx, "linalg_svd", "results of its first steps on the host");
  const auto batch = sdk::batch_shape(self);
  // The library gives A = L S R^H for m >= n: L is U and R is V. Else it is given A^T, so that L is
  // the transpose of V^H and R is conj(U). So R is the conjugate of what is stored, in both cases.
  const bool wide = self.size(-2) < self.size(-1);
  const Transposed flipped(self), flipped_vh(vectors ? TensorView(args.Vh) : self);
  Columns x(ctx, wide ? flipped.view() : self, batch, 2, true), values(ctx, args.S, batch, 1);
  // Vectors that are not wanted are not referenced.
  Columns u(ctx, vectors ? TensorView(args.U) : self, batch, 2, !vectors);
  Columns vt(ctx, flipped_vh.view(), batch, 2, !vectors);
  const Columns &l = wide ? vt : u, &r = wide ? u : vt;
  int32_t* const infos = scratch<int32_t>(ctx, x.count());
  x.load();
  complex_passes::refuse_not_finite(ctx, x, Part::kAll, not_finite.of(ctx, self));
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  const cusolverEigMode_t mode = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  const int economic = args.full_matrices != 0 ? 0 : 1;
  const int m = static_cast<int>(x.rows()), n = static_cast<int>(x.columns());
  visit_complex_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = RealPart<T>;
    thread_local const gesvdjInfo_t options = jacobi_options(std::numeric_limits<Real>::epsilon());
    int size = 0;
    MYTORCH_SOLVE_COMPLEX(T, gesvdj_bufferSize, handle, mode, economic, m, n, x.at<T>(0), m,
                          values.at<Real>(0), l.at<T>(0), m, r.at<T>(0), n, &size, options);
    T* const work = scratch<T>(ctx, size);
    for (int64_t b = 0; b < x.count(); ++b) {
      MYTORCH_SOLVE_COMPLEX(T, gesvdj, handle, mode, economic, m, n, x.at<T>(b), m,
                            values.at<Real>(b), l.at<T>(b), m, r.at<T>(b), n, work, size, infos + b,
                            options);
    }
  });
  note_infos(ctx, infos, x.count(), 0, not_done.of(ctx, self));
  values.store();
  if (!vectors) return;
  complex_passes::conjugate(ctx, r);
  complex_passes::fix_phases(ctx, u, values.rows(), &vt);
  u.store();
  vt.store();
}

}  // namespace

void register_cusolver_complex(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED | MT_TAKES_COMPLEX;
  const auto add = [&](auto entry) { kernels.push_back(entry); };
  add(sdk::kernel<&complex_cholesky, &complex_cholesky_supports>("cusolver_complex", kTakes));
  add(sdk::kernel<&complex_lu, &complex_lu_supports>("cusolver_complex", kTakes));
  add(sdk::kernel<&complex_lu_solve, &complex_lu_solve_supports>("cusolver_complex", kTakes));
  add(sdk::kernel<&complex_triangular, &complex_triangular_supports>("cublas_complex", kTakes));
  add(sdk::kernel<&complex_geqrf, &complex_geqrf_supports>("cusolver_complex", kTakes));
  add(sdk::kernel<&complex_qr, &complex_qr_supports>("cusolver_complex", kTakes));
  add(sdk::kernel<&complex_product_of_reflections, &complex_product_supports>("cusolver_complex",
                                                                              kTakes));
  add(sdk::kernel<&complex_eigh, &complex_eigh_supports>("cusolver_complex", kTakes));
  add(sdk::kernel<&complex_svd, &complex_svd_supports>("cusolver_complex", kTakes));
}

}  // namespace mytorch::cuda

#endif  // cusolver_absent.cpp otherwise
