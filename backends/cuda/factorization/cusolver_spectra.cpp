// Eigenvalues and singular values of large matrices, and of all complex ones, by cuSOLVER.
#if __has_include(<cusolverDn.h>)

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "backends/cuda/factorization/passes.h"
#include "backends/cuda/factorization/solver.h"
#include "backends/cuda/factorization/transposed.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/capture.h"
#include "mytorch/abi_ops/linalg_eigh_forward.h"
#include "mytorch/abi_ops/linalg_svd_forward.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// ---- eigenvalues, by divide and conquer

template <bool kComplex>
const char* eigh_supports(const mt_args_linalg_eigh_forward& args) {
  return library_reason(args.self, kComplex);
}

void eigh(mt_ctx& ctx, const mt_args_linalg_eigh_forward& args) {
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
  refuse_not_finite(ctx, x, upper ? Part::kUpper : Part::kLower, not_finite.of(ctx, self));
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  const cusolverEigMode_t mode = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  const cublasFillMode_t part = upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
  const int64_t n = x.rows();
  int32_t* const infos = scratch<int32_t>(ctx, x.count());
  visit_any_matrix_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = RealOf<T>;
    constexpr cudaDataType type = kDataType<T>, real = kDataType<Real>;
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
  fix_phases(ctx, x, n, nullptr);
  x.store();
}

// ---- singular values, by the polar decomposition if there is one, of real matrices, else by
// one-sided Jacobi rotations, which take twice as long and are less accurate

template <bool kComplex>
const char* svd_supports(const mt_args_linalg_svd_forward& args) {
  if (const char* reason = library_reason(args.self, kComplex)) return reason;
  if (args.compute_uv == 0) return nullptr;
  const char* reason = library_reason(args.U, kComplex);
  return reason != nullptr ? reason : library_reason(args.Vh, kComplex);
}

// The operands of the library, m >= n: x = u diag(values) v^H.
struct Decomposition {
  const Columns &x, &values, &u, &v;
  cusolverEigMode_t mode;
  int economic;

  int m() const { return static_cast<int>(x.rows()); }
  int n() const { return static_cast<int>(x.columns()); }
};

// Returns false if the library had to change a matrix, which is then singular or nearly so.
template <class T>
bool by_polar_decomposition(mt_ctx& ctx, const Decomposition& d, int32_t* infos) {
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  constexpr cudaDataType type = kDataType<T>;
  const int64_t m = d.m(), n = d.n();
  size_t on_device = 0, on_host = 0;
  check(solver().cusolverDnXgesvdp_bufferSize(handle, solver_params(), d.mode, d.economic, m, n,
                                              type, d.x.at<T>(0), m, type, d.values.at<T>(0), type,
                                              d.u.at<T>(0), m, type, d.v.at<T>(0), n, type,
                                              &on_device, &on_host),
        "cusolverDnXgesvdp_bufferSize");
  void* const work = scratch_bytes(ctx, std::max<size_t>(on_device, 1));
  std::vector<char> host(on_host + 1);
  for (int64_t b = 0; b < d.x.count(); ++b) {
    double change = 0;
    check(solver().cusolverDnXgesvdp(handle, solver_params(), d.mode, d.economic, m, n, type,
                                     d.x.at<T>(b), m, type, d.values.at<T>(b), type, d.u.at<T>(b),
                                     m, type, d.v.at<T>(b), n, type, work, on_device, host.data(),
                                     on_host, infos + b, &change),
          "cusolverDnXgesvdp");
    CUDA(cudaStreamSynchronize(stream_of(ctx)));
    if (!(change == 0)) return false;
  }
  return true;
}

template <class T>
void by_rotations(mt_ctx& ctx, const Decomposition& d, int32_t* infos) {
  using Real = RealOf<T>;
  thread_local const gesvdjInfo_t options = jacobi_options(std::numeric_limits<Real>::epsilon());
  const cusolverDnHandle_t handle = solver_handle_of(ctx);
  const int m = d.m(), n = d.n();
  int size = 0;
  MYTORCH_SOLVE(T, gesvdj_bufferSize, handle, d.mode, d.economic, m, n, d.x.at<T>(0), m,
                d.values.at<Real>(0), d.u.at<T>(0), m, d.v.at<T>(0), n, &size, options);
  T* const work = scratch<T>(ctx, size);
  for (int64_t b = 0; b < d.x.count(); ++b) {
    MYTORCH_SOLVE(T, gesvdj, handle, d.mode, d.economic, m, n, d.x.at<T>(b), m,
                  d.values.at<Real>(b), d.u.at<T>(b), m, d.v.at<T>(b), n, work, size, infos + b,
                  options);
  }
}

void svd(mt_ctx& ctx, const mt_args_linalg_svd_forward& args) {
  static const MatrixSites not_finite("linalg_svd", sdk::kNotFinite);
  static const MatrixSites not_done("linalg_svd", kNoConvergence);
  const TensorView self = args.self;
  const bool vectors = args.compute_uv != 0;
  if (self.numel() == 0) {
    if (vectors) set_identity(ctx, args.U), set_identity(ctx, args.Vh);
    return;
  }
  check_not_captured(ctx, "linalg_svd", "results of its first steps on the host");
  const auto batch = sdk::batch_shape(self);
  // The library gives A = u S v^H for m >= n: u is U and v is V. Else it is given A^T, so that u is
  // the transpose of V^H and v is conj(U). So v is the conjugate of what is stored, in both cases.
  const bool wide = self.size(-2) < self.size(-1);
  const Transposed flipped(self), flipped_vh(vectors ? TensorView(args.Vh) : self);
  Columns x(ctx, wide ? flipped.view() : self, batch, 2, true), values(ctx, args.S, batch, 1);
  // Vectors that are not wanted are not referenced.
  Columns u(ctx, vectors ? TensorView(args.U) : self, batch, 2, !vectors);
  Columns v(ctx, flipped_vh.view(), batch, 2, !vectors);
  const Decomposition d{x,
                        values,
                        wide ? v : u,
                        wide ? u : v,
                        vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR,
                        args.full_matrices != 0 ? 0 : 1};
  int32_t* const infos = scratch<int32_t>(ctx, x.count());
  const auto load = [&] {
    x.load();
    refuse_not_finite(ctx, x, Part::kAll, not_finite.of(ctx, self));
  };
  load();
  visit_any_matrix_type(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!is_complex_number<T>) {
      constexpr int64_t kLeast = 64;  // columns from which on the polar decomposition is faster
      if (vectors && d.n() >= kLeast && (d.economic != 0 || d.m() == d.n())) {
        if (by_polar_decomposition<T>(ctx, d, infos)) return;
        load();
      }
    }
    by_rotations<T>(ctx, d, infos);
  });
  note_infos(ctx, infos, x.count(), 0, not_done.of(ctx, self));
  values.store();
  if (!vectors) return;
  conjugate(ctx, d.v);
  fix_phases(ctx, u, values.rows(), &v);
  u.store();
  v.store();
}

template <bool kComplex>
void register_spectra(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED | (kComplex ? uint32_t{MT_TAKES_COMPLEX} : 0);
  const char* const name = kComplex ? "cusolver_complex" : "cusolver";
  kernels.push_back(sdk::kernel<&eigh, &eigh_supports<kComplex>>(name, kTakes));
  kernels.push_back(sdk::kernel<&svd, &svd_supports<kComplex>>(name, kTakes));
}

}  // namespace

void register_cusolver_spectra(KernelEntries& kernels) { register_spectra<false>(kernels); }
void register_complex_spectra(KernelEntries& kernels) { register_spectra<true>(kernels); }

}  // namespace mytorch::cuda

#endif  // cusolver_absent.cpp otherwise
