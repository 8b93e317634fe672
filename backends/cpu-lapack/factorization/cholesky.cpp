// The Cholesky factorization.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "backends/cpu-lapack/common/routines.h"
#include "backends/cpu-lapack/common/threads.h"
#include "backends/cpu-lapack/registry.h"
#include "mytorch/abi_ops/linalg_cholesky_ex.h"
#include "mytorch/backend.h"
#include "mytorch/backend/matrices.h"

namespace mytorch::lapack {
namespace {

using sdk::Matrices;

const char* cholesky_supports(const mt_args_linalg_cholesky_ex& args) {
  return size_reason(args.self);
}

void cholesky(mt_ctx& ctx, const mt_args_linalg_cholesky_ex& args) {
  const auto batch = sdk::batch_shape(args.self);
  const Matrices<int32_t> infos(args.info, batch, 0);
  std::vector<int> found(static_cast<size_t>(infos.count()), 0);
  sdk::visit_matrix_type(sdk::TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> from(args.self, batch);
    const Matrices<T> to(args.L, batch);
    const int64_t n = from.rows();
    const bool in_place = to.in_columns(), upper = args.upper != 0;
    each_matrix<T>(ctx, from.count(), n, in_place ? 0 : n * n, [&](int64_t b, T* memory) {
      T* a = in_place ? to.at(b) : memory;
      from.load(b, a);
      int info = n == 0 ? 0 : potrf<T>(upper ? 'U' : 'L', static_cast<int>(n), a, leading(n));
      // OpenBLAS takes NaN for positive.
      for (int64_t j = 0; j < n && info == 0; ++j) {
        if (std::isnan(std::real(a[j * n + j]))) info = static_cast<int>(j) + 1;
      }
      // The other triangle, and the part that is not factorized.
      for (int64_t j = 0; j < n; ++j) {
        T* column = a + j * n;
        if (info != 0) {
          std::fill(column, column + n, T(std::numeric_limits<sdk::RealOf<T>>::quiet_NaN()));
        } else if (upper) {
          std::fill(column + j + 1, column + n, T(0));
        } else {
          std::fill(column, column + j, T(0));
        }
      }
      to.store(b, a);
      *infos.at(b) = found[static_cast<size_t>(b)] = info;
    });
  });
  sdk::check_info(args.check_errors != 0, "linalg_cholesky_ex", args.self, found.data(),
                  infos.count(), sdk::not_positive);
}

}  // namespace

void register_cholesky(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&cholesky, &cholesky_supports>("potrf", kMatrices));
}

}  // namespace mytorch::lapack
