// Eigenvalues and eigenvectors of symmetric matrices, by divide and conquer.
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
  visit_type(sdk::TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> from(args.self, batch);
    const Matrices<T> to_values(args.eigenvalues, batch, 1);
    const int64_t n = from.rows();
    if (n == 0 || from.count() == 0) return;
    const int size = static_cast<int>(n);
    const char job = vectors ? 'V' : 'N', triangle = upper ? 'U' : 'L';
    T wanted = 0;
    int wanted_integers = 0;
    syevd<T>(job, triangle, size, static_cast<T*>(nullptr), size, static_cast<T*>(nullptr), &wanted,
             -1, &wanted_integers, -1);
    // A float may round the number of elements down.
    const int64_t work = static_cast<int64_t>(static_cast<double>(wanted) * 1.000001) + 1;
    const Matrices<T> to = vectors ? Matrices<T>(args.eigenvectors, batch) : to_values;
    const bool in_place = vectors && to.in_columns();
    each_matrix<T>(
        ctx, from.count(), n, n + work + (in_place ? 0 : n * n), [&](int64_t b, T* memory) {
          T *values = memory, *area = memory + n, *a = in_place ? to.at(b) : area + work;
          from.load(b, a);
          // The algorithm may not end with NaN. The other triangle is not read.
          T sum = 0;
          for (int64_t j = 0; j < n; ++j) {
            for (int64_t i = upper ? 0 : j; i < (upper ? j + 1 : n); ++i) sum += a[j * n + i] * 0;
          }
          if (sum != 0) sdk::fail_matrix("linalg_eigh", args.self, b, sdk::kNotFinite);
          const std::unique_ptr<int[]> integers(new int[static_cast<size_t>(wanted_integers)]);
          const int info = syevd<T>(job, triangle, size, a, size, values, area,
                                    static_cast<int>(work), integers.get(), wanted_integers);
          if (info != 0) {
            sdk::fail_matrix("linalg_eigh", args.self, b,
                             "the algorithm failed to converge: the matrix is ill-conditioned or "
                             "has too many repeated eigenvalues");
          }
          to_values.store(b, values);
          if (!vectors) return;
          for (int64_t j = 0; j < n; ++j) {
            T* column = a + j * n;
            if (!sdk::needs_flip(column, n)) continue;
            for (int64_t i = 0; i < n; ++i) column[i] = -column[i];
          }
          to.store(b, a);
        });
  });
}

}  // namespace

void register_eigenvalues(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&eigh, &eigh_supports>("syevd", MT_TAKES_STRIDED));
}

}  // namespace mytorch::lapack
