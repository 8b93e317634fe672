// Eigenvalues and eigenvectors of symmetric and Hermitian matrices, by divide and conquer.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "backends/cpu-lapack/common/routines.h"
#include "backends/cpu-lapack/common/threads.h"
#include "backends/cpu-lapack/registry.h"
#include "mytorch/abi_ops/linalg_eigh_forward.h"
#include "mytorch/backend.h"
#include "mytorch/backend/matrices.h"

namespace mytorch::lapack {
namespace {

using sdk::Matrices;

const char* eigh_supports(const mt_args_linalg_eigh_forward& args) {
  return size_reason(args.self);
}

void eigh(mt_ctx& ctx, const mt_args_linalg_eigh_forward& args) {
  const auto batch = sdk::batch_shape(args.self);
  const bool upper = args.UPLO[0] == 'U' || args.UPLO[0] == 'u', vectors = args.compute_v != 0;
  sdk::visit_matrix_type(sdk::TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> from(args.self, batch);
    using Real = sdk::RealOf<T>;
    const Matrices<Real> to_values(args.eigenvalues, batch, 1);
    const int64_t n = from.rows();
    if (n == 0 || from.count() == 0) return;
    const int size = static_cast<int>(n);
    const char job = vectors ? 'V' : 'N', triangle = upper ? 'U' : 'L';
    // Complex routines have a work area of real numbers, too.
    const auto call = [&](T* a, Real* values, T* area, int64_t length, Real* reals,
                          int64_t reals_length, int* integers, int integers_length) {
      if constexpr (sdk::is_complex_number<T>) {
        return syevd<T>(job, triangle, size, a, size, values, area, static_cast<int>(length), reals,
                        static_cast<int>(reals_length), integers, integers_length);
      } else {
        return syevd<T>(job, triangle, size, a, size, values, area, static_cast<int>(length),
                        integers, integers_length);
      }
    };
    T wanted = 0;
    Real wanted_reals = 0;
    int wanted_integers = 0;
    call(nullptr, nullptr, &wanted, -1, &wanted_reals, -1, &wanted_integers, -1);
    const int64_t work = work_length(wanted), reals = work_length(wanted_reals);
    // Without vectors, the matrix is destroyed in memory of its own.
    const Matrices<T> to(vectors ? args.eigenvectors : args.self, batch);
    const bool in_place = vectors && to.in_columns();
    each_matrix<T>(
        ctx, from.count(), n, n + reals + work + (in_place ? 0 : n * n), [&](int64_t b, T* memory) {
          Real *values = reinterpret_cast<Real*>(memory), *of_reals = values + n;
          T *area = memory + n + reals, *a = in_place ? to.at(b) : area + work;
          from.load(b, a);
          // The algorithm may not end with NaN. The other triangle is not read.
          Real sum = 0;
          for (int64_t j = 0; j < n; ++j) {
            for (int64_t i = upper ? 0 : j; i < (upper ? j + 1 : n); ++i) {
              sum += zero_unless_finite(a[j * n + i]);
            }
          }
          if (sum != 0) sdk::fail_matrix("linalg_eigh", args.self, b, sdk::kNotFinite);
          const std::unique_ptr<int[]> integers(new int[static_cast<size_t>(wanted_integers)]);
          const int info =
              call(a, values, area, work, of_reals, reals, integers.get(), wanted_integers);
          if (info != 0) {
            sdk::fail_matrix("linalg_eigh", args.self, b,
                             "the algorithm failed to converge: the matrix is ill-conditioned or "
                             "has too many repeated eigenvalues");
          }
          to_values.store(b, values);
          if (!vectors) return;
          for (int64_t j = 0; j < n; ++j) {
            T* column = a + j * n;
            const T factor = sdk::unique_factor(column, n);
            if (factor == T(1)) continue;
            for (int64_t i = 0; i < n; ++i) column[i] *= factor;
          }
          to.store(b, a);
        });
  });
}

}  // namespace

void register_eigenvalues(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&eigh, &eigh_supports>("syevd", kMatrices));
}

}  // namespace mytorch::lapack
