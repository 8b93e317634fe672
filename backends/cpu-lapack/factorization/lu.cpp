// The LU factorization, solves with it, and its permutation.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "backends/cpu-lapack/common/routines.h"
#include "backends/cpu-lapack/common/threads.h"
#include "backends/cpu-lapack/registry.h"
#include "mytorch/abi_ops/linalg_lu_factor_ex.h"
#include "mytorch/abi_ops/linalg_lu_permutation.h"
#include "mytorch/abi_ops/linalg_lu_solve.h"
#include "mytorch/backend.h"
#include "mytorch/backend/matrices.h"

namespace mytorch::lapack {
namespace {

using sdk::Matrices;

const char* lu_factor_supports(const mt_args_linalg_lu_factor_ex& args) {
  return size_reason(args.A);
}

void lu_factor(mt_ctx& ctx, const mt_args_linalg_lu_factor_ex& args) {
  const auto batch = sdk::batch_shape(args.A);
  const Matrices<int32_t> infos(args.info, batch, 0), exchanges(args.pivots, batch, 1);
  std::vector<int> found(static_cast<size_t>(infos.count()), 0);
  sdk::visit_matrix_type(sdk::TensorView(args.A).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> from(args.A, batch);
    const Matrices<T> to(args.LU, batch);
    const int64_t m = from.rows(), n = from.columns();
    const bool in_place = to.in_columns();
    each_matrix<T>(
        ctx, from.count(), std::min(m, n), in_place ? 0 : m * n, [&](int64_t b, T* memory) {
          T* a = in_place ? to.at(b) : memory;
          from.load(b, a);
          std::vector<int32_t> pivots(static_cast<size_t>(std::min(m, n)));
          const int info = m == 0 || n == 0 ? 0
                                            : getrf<T>(static_cast<int>(m), static_cast<int>(n), a,
                                                       leading(m), pivots.data());
          to.store(b, a);
          exchanges.store(b, pivots.data());
          *infos.at(b) = found[static_cast<size_t>(b)] = info;
        });
  });
  sdk::check_info(args.check_errors != 0, "linalg_lu_factor_ex", args.A, found.data(),
                  infos.count(), sdk::singular);
}

const char* lu_solve_supports(const mt_args_linalg_lu_solve& args) {
  if (const char* reason = size_reason(args.LU)) return reason;
  return size_reason(args.out);
}

void lu_solve(mt_ctx& ctx, const mt_args_linalg_lu_solve& args) {
  const auto batch = sdk::batch_shape(args.out);
  const Matrices<const int32_t> exchanges(args.pivots, batch, 1);
  const bool left = args.left != 0, adjoint = args.adjoint != 0;
  sdk::visit_matrix_type(sdk::TensorView(args.out).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> factors(args.LU, batch), right(args.B, batch);
    const Matrices<T> to(args.out, batch);
    const int64_t n = factors.rows(), m = right.rows(), c = right.columns();
    if (n == 0 || m == 0 || c == 0) return;
    const bool given = factors.in_columns(), in_place = to.in_columns() && left;
    const int64_t of_factors = given ? 0 : n * n;
    each_matrix<T>(
        ctx, to.count(), n, of_factors + (in_place ? 0 : m * c), [&](int64_t b, T* memory) {
          if (!given) factors.load(b, memory);
          const T* lu = given ? factors.at(b) : memory;
          std::vector<int32_t> pivots(static_cast<size_t>(n));
          exchanges.load(b, pivots.data());
          for (const int32_t pivot : pivots) sdk::check_pivot("linalg_lu_solve", pivot, n);
          T* x = in_place ? to.at(b) : memory + of_factors;
          if (left) {
            right.load(b, x);
            getrs<T>(adjoint ? kAdjoint<T> : 'N', static_cast<int>(n), static_cast<int>(c), lu,
                     leading(n), pivots.data(), x, leading(n));
            to.store(b, x);
            return;
          }
          // X A = B, op(A^H) X^H = B^H.
          const T* from = right.at(b);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              x[i * n + j] = conjugate(from[i * right.row_stride() + j * right.column_stride()]);
            }
          }
          getrs<T>(adjoint ? 'N' : kAdjoint<T>, static_cast<int>(n), static_cast<int>(m), lu,
                   leading(n), pivots.data(), x, leading(n));
          T* out = to.at(b);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              out[i * to.row_stride() + j * to.column_stride()] = conjugate(x[i * n + j]);
            }
          }
        });
  });
}

void permutation(mt_ctx& /*ctx*/, const mt_args_linalg_lu_permutation& args) {
  const auto batch = sdk::batch_shape(args.out, 1);
  const Matrices<const int32_t> exchanges(args.pivots, batch, 1);
  const Matrices<int64_t> to(args.out, batch, 1);
  std::vector<int64_t> order(static_cast<size_t>(to.rows()));
  for (int64_t b = 0; b < to.count(); ++b) {
    std::iota(order.begin(), order.end(), 0);
    const int32_t* pivots = exchanges.at(b);
    for (int64_t i = 0; i < exchanges.rows(); ++i) {
      const int64_t pivot = pivots[i * exchanges.row_stride()];
      sdk::check_pivot("linalg_lu_permutation", pivot, to.rows());
      std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(pivot - 1)]);
    }
    to.store(b, order.data());
  }
}

}  // namespace

void register_lu(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&lu_factor, &lu_factor_supports>("getrf", kMatrices));
  kernels.push_back(sdk::kernel<&lu_solve, &lu_solve_supports>("getrs", kMatrices));
  kernels.push_back(sdk::kernel<&permutation>("exchanges", kMatrices));
}

}  // namespace mytorch::lapack
