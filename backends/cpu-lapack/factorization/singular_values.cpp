// The singular value decomposition, by divide and conquer.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "backends/cpu-lapack/common/routines.h"
#include "backends/cpu-lapack/common/threads.h"
#include "backends/cpu-lapack/registry.h"
#include "mytorch/abi_ops/linalg_svd_forward.h"
#include "mytorch/backend.h"
#include "mytorch/backend/matrices.h"

namespace mytorch::lapack {
namespace {

using sdk::Matrices;

const char* svd_supports(const mt_args_linalg_svd_forward& args) {
  if (const char* reason = size_reason(args.self)) return reason;
  if (args.compute_uv == 0) return nullptr;
  if (const char* reason = size_reason(args.U)) return reason;
  return size_reason(args.Vh);
}

// The vectors of an empty matrix: those of the identity.
template <class T>
void store_identity(const Matrices<T>& to) {
  for (int64_t b = 0; b < to.count(); ++b) {
    for (int64_t i = 0; i < to.rows(); ++i) {
      for (int64_t j = 0; j < to.columns(); ++j) {
        to.at(b)[i * to.row_stride() + j * to.column_stride()] = static_cast<T>(i == j);
      }
    }
  }
}

void svd(mt_ctx& ctx, const mt_args_linalg_svd_forward& args) {
  const auto batch = sdk::batch_shape(args.self);
  const bool vectors = args.compute_uv != 0;
  sdk::visit_matrix_type(sdk::TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> from(args.self, batch);
    using Real = sdk::RealOf<T>;
    const Matrices<Real> to_values(args.S, batch, 1);
    // Not written without vectors.
    const Matrices<T> to_u(vectors ? args.U : args.self, batch);
    const Matrices<T> to_v(vectors ? args.Vh : args.self, batch);
    const int64_t m = from.rows(), n = from.columns(), k = std::min(m, n);
    if (from.count() == 0) return;
    if (k == 0) {
      if (vectors) store_identity(to_u), store_identity(to_v);
      return;
    }
    const char job = !vectors ? 'N' : args.full_matrices ? 'A' : 'S';
    const int64_t left = vectors ? to_u.columns() : 0, right = vectors ? to_v.rows() : 0;
    const int rows = static_cast<int>(m), columns = static_cast<int>(n);
    const int ldu = leading(vectors ? m : 1), ldv = leading(vectors ? right : 1);
    // Complex routines have a work area of real numbers, too, for which there is no query.
    const auto call = [&](T* a, Real* values, T* u, T* v, T* area, int64_t length,
                          [[maybe_unused]] Real* reals, int* integers) {
      if constexpr (sdk::is_complex_number<T>) {
        return gesdd<T>(job, rows, columns, a, rows, values, u, ldu, v, ldv, area,
                        static_cast<int>(length), reals, integers);
      } else {
        return gesdd<T>(job, rows, columns, a, rows, values, u, ldu, v, ldv, area,
                        static_cast<int>(length), integers);
      }
    };
    T wanted = 0;
    call(nullptr, nullptr, nullptr, nullptr, &wanted, -1, nullptr, nullptr);
    const int64_t work = work_length(wanted);
    const int64_t longer = std::max(m, n);
    const int64_t reals = !sdk::is_complex_number<T> ? 0
                          : vectors ? std::max(5 * k * k + 5 * k, 2 * longer * k + 2 * k * k + k)
                                    : 7 * k;
    const bool u_in_place = vectors && to_u.in_columns(), v_in_place = vectors && to_v.in_columns();
    const int64_t of_u = u_in_place ? 0 : m * left, of_v = v_in_place ? 0 : right * n;
    each_matrix<T>(
        ctx, from.count(), k, m * n + k + reals + work + of_u + of_v, [&](int64_t b, T* memory) {
          T *a = memory, *area = a + m * n + k + reals;
          Real *values = reinterpret_cast<Real*>(a + m * n), *of_reals = values + k;
          T* u = u_in_place ? to_u.at(b) : area + work;
          T* v = v_in_place ? to_v.at(b) : area + work + of_u;
          from.load(b, a);
          Real sum = 0;  // NaN if an element is not finite, with which the algorithm may not end
          for (int64_t i = 0; i < m * n; ++i) sum += zero_unless_finite(a[i]);
          if (sum != 0) sdk::fail_matrix("linalg_svd", args.self, b, sdk::kNotFinite);
          const std::unique_ptr<int[]> integers(new int[static_cast<size_t>(8 * k)]);
          const int info = call(a, values, u, v, area, work, of_reals, integers.get());
          if (info != 0) {
            sdk::fail_matrix("linalg_svd", args.self, b,
                             "the algorithm failed to converge: the matrix is ill-conditioned or "
                             "has too many repeated singular values");
          }
          to_values.store(b, values);
          if (!vectors) return;
          for (int64_t j = 0; j < k; ++j) {
            T* column = u + j * m;
            const T factor = sdk::unique_factor(column, m);
            if (factor == T(1)) continue;
            for (int64_t i = 0; i < m; ++i) column[i] *= factor;
            for (int64_t i = 0; i < n; ++i) v[i * right + j] *= conjugate(factor);
          }
          to_u.store(b, u);
          to_v.store(b, v);
        });
  });
}

}  // namespace

void register_singular_values(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&svd, &svd_supports>("gesdd", kMatrices));
}

}  // namespace mytorch::lapack
