// Eigenvalues and eigenvectors of symmetric and Hermitian matrices: by divide and conquer, or with
// the vectors of small matrices by the implicit QL method. All reduce the matrix to a tridiagonal
// one first.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

#include "backends/cpu-lapack/common/routines.h"
#include "backends/cpu-lapack/common/threads.h"
#include "backends/cpu-lapack/factorization/tridiagonal.h"
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

constexpr const char* kNotConverged =
    "the algorithm failed to converge: the matrix is ill-conditioned or has too many repeated "
    "eigenvalues";

// Throws an Error if the triangle of a column-major matrix b that is read has elements that are not
// finite, with which the algorithm may not end. Returns the largest magnitude of a part.
template <class T>
sdk::RealOf<T> checked_size(const sdk::TensorView& of, int64_t b, const T* a, int64_t n, int64_t ld,
                            bool upper) {
  using Real = sdk::RealOf<T>;
  Real sum = 0, most = 0;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = upper ? 0 : j; i < (upper ? j + 1 : n); ++i) {
      const T x = a[j * ld + i];
      sum += zero_unless_finite(x);
      most = std::max({most, std::abs(std::real(x)), std::abs(std::imag(x))});
    }
  }
  if (sum != 0) sdk::fail_matrix("linalg_eigh", of, b, sdk::kNotFinite);
  return most;
}

template <class T>
void make_unique(int64_t n, T* vectors, int64_t ld) {
  for (int64_t j = 0; j < n; ++j) {
    T* column = vectors + j * ld;
    const T factor = sdk::unique_factor(column, n);
    if (factor == T(1)) continue;
    for (int64_t i = 0; i < n; ++i) column[i] *= factor;
  }
}

// Up to this size the QL method is faster, as measured.
template <class T>
bool is_small(int64_t n) {
  return n <= 48 && n * static_cast<int64_t>(sizeof(T)) <= 512;
}

// Brings the largest magnitude of a part near 1 by a power of 2, so that squares are in range, and
// returns its exponent.
template <class T, class Real>
int scale_to_one(T* a, int64_t count, Real most) {
  constexpr int kMost = std::numeric_limits<Real>::max_exponent - 2;
  const int exponent = most > 0 ? std::clamp(std::ilogb(most), -kMost, kMost) : 0;
  if (exponent == 0) return 0;
  const Real scale = std::ldexp(Real(1), -exponent);
  for (int64_t i = 0; i < count; ++i) a[i] *= scale;
  return exponent;
}

template <class Real>
void scale_back(Real* values, int64_t n, int exponent) {
  if (exponent == 0) return;
  for (int64_t i = 0; i < n; ++i) values[i] = std::ldexp(values[i], exponent);
}

template <class T>
void small_eigh(mt_ctx& ctx, const sdk::TensorView& self, bool upper, const Matrices<const T>& from,
                const Matrices<sdk::RealOf<T>>& to_values, const Matrices<T>& to) {
  using Real = sdk::RealOf<T>;
  constexpr int64_t kUnit = kColumnUnit * static_cast<int64_t>(sizeof(Real)) / sizeof(T);
  constexpr int64_t kBlock = 32;  // the columns that LAPACK's routines work on at once
  const int64_t n = from.rows(), ld = (n + kUnit - 1) / kUnit * kUnit;
  const char triangle = upper ? 'U' : 'L';
  const int size = static_cast<int>(n), step = static_cast<int>(ld);
  each_matrix<T>(ctx, from.count(), n, (ld + 3 + kBlock) * n, [&](int64_t b, T* memory) {
    T *a = memory, *tau = a + ld * n, *area = tau + n;
    Real *values = reinterpret_cast<Real*>(area + kBlock * n), *beside = values + n;
    std::fill_n(a, ld * n, T(0));
    from.load(b, a, ld);
    const Real most = checked_size(self, b, a, n, ld, upper);
    const int exponent = scale_to_one(a, ld * n, most);
    const int length = static_cast<int>(kBlock * n);
    sytrd<T>(triangle, size, a, step, values, beside, tau, area, length);
    orgtr<T>(triangle, size, a, step, tau, area, length);
    if (!tridiagonal_eigenvectors(n, values, beside, reinterpret_cast<Real*>(a),
                                  ld * kColumnUnit / kUnit)) {
      sdk::fail_matrix("linalg_eigh", self, b, kNotConverged);
    }
    scale_back(values, n, exponent);
    to_values.store(b, values);
    make_unique(n, a, ld);
    to.store(b, a, ld);
  });
}

// Multiplies the n x n matrix c by the orthogonal matrix of sytrd's lower triangle. LAPACK's ormtr
// applies 32 reflectors at once, whose products are too thin. Blocks of any width need only
// products and a triangular solve, because the inverse of their triangular factor is known: the
// products of different reflectors, and 1 / tau on the diagonal (Joffrain, Low, Quintana-Orti, van
// de Geijn and Van Zee, 2006). `area` has room for apply_length(n).
constexpr int kWidth = 64;
constexpr int64_t apply_length(int64_t n) { return (2 * n + kWidth) * kWidth; }

template <class T>
void apply_reflectors(int n, const T* a, const T* tau, T* c, T* area) {
  T *v = area, *w = v + int64_t{n} * kWidth, *factor = w + int64_t{n} * kWidth;
  for (int first = (n - 2) / kWidth * kWidth; first >= 0; first -= kWidth) {
    const int width = std::min(kWidth, n - 1 - first), rows = n - 1 - first;
    for (int j = 0; j < width; ++j) {
      T* to = v + int64_t{j} * rows;
      const T* from = a + int64_t{first + j} * n + first + 1;
      std::fill_n(to, j, T(0));
      to[j] = tau[first + j] == 0 ? T(0) : T(1);  // a reflector with tau 0 is the identity
      for (int i = j + 1; i < rows; ++i) to[i] = tau[first + j] == 0 ? T(0) : from[i];
    }
    gemm('T', width, width, rows, T(1), v, rows, v, rows, T(0), factor, width);
    for (int j = 0; j < width; ++j) {
      factor[j * width + j] = tau[first + j] == 0 ? T(1) : 1 / tau[first + j];
    }
    T* below = c + first + 1;
    gemm('T', width, n, rows, T(1), v, rows, below, n, T(0), w, width);
    trsm('L', 'U', 'N', 'N', width, n, factor, width, w, width);
    gemm('N', rows, n, width, T(-1), v, rows, w, width, T(1), below, n);
  }
}

// For real matrices of which the lower triangle is read.
template <class T>
void large_eigh(mt_ctx& ctx, const sdk::TensorView& self, const Matrices<const T>& from,
                const Matrices<T>& to_values, const Matrices<T>& to) {
  const int64_t n = from.rows();
  const int size = static_cast<int>(n);
  const int64_t work = std::max(n * n + 4 * n + 1, apply_length(n));
  const bool in_place = to.in_columns();
  each_matrix<T>(
      ctx, from.count(), n, n * n + 3 * n + work + (in_place ? 0 : n * n),
      [&](int64_t b, T* memory) {
        T *a = memory, *values = a + n * n, *beside = values + n, *tau = beside + n;
        T *area = tau + n, *vectors = in_place ? to.at(b) : area + work;
        from.load(b, a);
        const T most = checked_size(self, b, a, n, n, false);
        const int exponent = scale_to_one(a, n * n, most);
        sytrd<T>('L', size, a, size, values, beside, tau, area, static_cast<int>(work));
        const int integers_length = 3 + 5 * size;
        const std::unique_ptr<int[]> integers(new int[static_cast<size_t>(integers_length)]);
        const int info = stedc<T>('I', size, values, beside, vectors, size, area,
                                  static_cast<int>(work), integers.get(), integers_length);
        if (info != 0) sdk::fail_matrix("linalg_eigh", self, b, kNotConverged);
        apply_reflectors(size, a, tau, vectors, area);
        scale_back(values, n, exponent);
        to_values.store(b, values);
        make_unique(n, vectors, n);
        to.store(b, vectors);
      });
}

// From this size on, the products of large_eigh are faster than ormtr.
constexpr int64_t kLarge = 256;

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
    if (vectors && is_small<T>(n)) {
      return small_eigh<T>(ctx, args.self, upper, from, to_values,
                           Matrices<T>(args.eigenvectors, batch));
    }
    if constexpr (!sdk::is_complex_number<T>) {
      if (vectors && !upper && n >= kLarge) {
        return large_eigh<T>(ctx, args.self, from, to_values,
                             Matrices<T>(args.eigenvectors, batch));
      }
    }
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
          checked_size(args.self, b, a, n, n, upper);
          const std::unique_ptr<int[]> integers(new int[static_cast<size_t>(wanted_integers)]);
          const int info =
              call(a, values, area, work, of_reals, reals, integers.get(), wanted_integers);
          if (info != 0) {
            sdk::fail_matrix("linalg_eigh", args.self, b, kNotConverged);
          }
          to_values.store(b, values);
          if (!vectors) return;
          make_unique(n, a, n);
          to.store(b, a);
        });
  });
}

}  // namespace

void register_eigenvalues(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&eigh, &eigh_supports>("syevd", kMatrices));
}

}  // namespace mytorch::lapack
