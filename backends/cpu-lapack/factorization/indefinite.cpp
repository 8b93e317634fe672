// The factorization of symmetric and Hermitian matrices that are not definite, and solves with it.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/cpu-lapack/common/routines.h"
#include "backends/cpu-lapack/common/threads.h"
#include "backends/cpu-lapack/registry.h"
#include "mytorch/abi_ops/linalg_ldl_factor_ex.h"
#include "mytorch/abi_ops/linalg_ldl_solve.h"
#include "mytorch/backend.h"
#include "mytorch/backend/matrices.h"

namespace mytorch::lapack {
namespace {

using sdk::Matrices;

const char* factor_supports(const mt_args_linalg_ldl_factor_ex& args) {
  return size_reason(args.self);
}

// Makes the upper triangle 0. Returns whether the lower one is finite.
template <class T>
bool clear_upper(T* a, int64_t n) {
  sdk::RealOf<T> sum = 0;
  for (int64_t j = 0; j < n; ++j) {
    std::fill_n(a + j * n, j, T(0));
    for (int64_t i = j; i < n; ++i) sum += zero_unless_finite(a[j * n + i]);
  }
  return sum == 0;
}
template <class T>
void fill_lower(T* a, int64_t n, T value) {
  for (int64_t j = 0; j < n; ++j) std::fill_n(a + j * n + j, n - j, value);
}

template <class T>
int factorize(bool hermitian, int n, T* a, int* pivots, T* area, int length) {
  if constexpr (sdk::is_complex_number<T>) {
    if (hermitian) return hetrf<T>('L', n, a, n, pivots, area, length);
  }
  return sytrf<T>('L', n, a, n, pivots, area, length);
}

void factor(mt_ctx& ctx, const mt_args_linalg_ldl_factor_ex& args) {
  const auto batch = sdk::batch_shape(args.self);
  const Matrices<int32_t> infos(args.info, batch, 0), exchanges(args.pivots, batch, 1);
  const bool hermitian = args.hermitian != 0;
  std::vector<int> found(static_cast<size_t>(infos.count()), 0);
  sdk::visit_matrix_type(sdk::TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> from(args.self, batch);
    const Matrices<T> to(args.LD, batch);
    const int64_t n = from.rows();
    T wanted = 0;
    factorize<T>(hermitian, leading(n), nullptr, nullptr, &wanted, -1);
    const int64_t work = work_length(wanted);
    const bool in_place = to.in_columns();
    each_matrix<T>(ctx, from.count(), n, work + (in_place ? 0 : n * n), [&](int64_t b, T* memory) {
      T* a = in_place ? to.at(b) : memory + work;
      from.load(b, a);
      std::vector<int32_t> pivots(static_cast<size_t>(n));
      std::iota(pivots.begin(), pivots.end(), 1);
      const bool finite = clear_upper(a, n);
      int info = 0;
      if (!finite) {
        fill_lower(a, n, T(std::numeric_limits<sdk::RealOf<T>>::quiet_NaN()));
      } else if (n != 0) {
        info = factorize(hermitian, static_cast<int>(n), a, pivots.data(), memory,
                         static_cast<int>(work));
      }
      to.store(b, a);
      exchanges.store(b, pivots.data());
      *infos.at(b) = found[static_cast<size_t>(b)] = info;
    });
  });
  sdk::check_info(args.check_errors != 0, "linalg_ldl_factor_ex", args.self, found.data(),
                  infos.count(), sdk::no_diagonal);
}

// Whether an element of L is not finite, or one of D is NaN. The routines skip zeros of B, and with
// them such elements.
template <class T>
bool has_bad_factor(const T* ld, const int* pivots, int64_t n) {
  for (int64_t j = 0; j < n;) {
    const int64_t rows = pivots[j] < 0 ? 2 : 1, end = j + rows;
    for (; j < end; ++j) {
      for (int64_t i = j; i < end; ++i) {
        if (ld[j * n + i] != ld[j * n + i]) return true;
      }
      for (int64_t i = end; i < n; ++i) {
        if (zero_unless_finite(ld[j * n + i]) != 0) return true;
      }
    }
  }
  return false;
}

const char* solve_supports(const mt_args_linalg_ldl_solve& args) {
  if (const char* reason = size_reason(args.LD)) return reason;
  return size_reason(args.out);
}

void solve(mt_ctx& ctx, const mt_args_linalg_ldl_solve& args) {
  const auto batch = sdk::batch_shape(args.out);
  const Matrices<const int32_t> exchanges(args.pivots, batch, 1);
  const bool hermitian = args.hermitian != 0;
  sdk::visit_matrix_type(sdk::TensorView(args.out).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> factors(args.LD, batch), right(args.B, batch);
    const Matrices<T> to(args.out, batch);
    const int64_t n = factors.rows(), c = right.columns();
    if (n == 0 || c == 0) return;
    const bool given = factors.in_columns(), in_place = to.in_columns();
    const int64_t of_factors = given ? 0 : n * n;
    each_matrix<T>(ctx, to.count(), n, of_factors + (in_place ? 0 : n * c),
                   [&](int64_t b, T* memory) {
                     if (!given) factors.load(b, memory);
                     const T* ld = given ? factors.at(b) : memory;
                     std::vector<int32_t> pivots(static_cast<size_t>(n));
                     exchanges.load(b, pivots.data());
                     sdk::check_block_pivots("linalg_ldl_solve", pivots.data(), n);
                     T* x = in_place ? to.at(b) : memory + of_factors;
                     right.load(b, x);
                     if (has_bad_factor(ld, pivots.data(), n)) {
                       std::fill_n(x, n * c, T(std::numeric_limits<sdk::RealOf<T>>::quiet_NaN()));
                       to.store(b, x);
                       return;
                     }
                     const int rows = static_cast<int>(n), columns = static_cast<int>(c);
                     if constexpr (sdk::is_complex_number<T>) {
                       if (hermitian) {
                         hetrs<T>('L', rows, columns, ld, rows, pivots.data(), x, rows);
                         to.store(b, x);
                         return;
                       }
                     }
                     sytrs<T>('L', rows, columns, ld, rows, pivots.data(), x, rows);
                     to.store(b, x);
                   });
  });
}

}  // namespace

void register_indefinite(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&factor, &factor_supports>("sytrf", kMatrices));
  kernels.push_back(sdk::kernel<&solve, &solve_supports>("sytrs", kMatrices));
}

}  // namespace mytorch::lapack
