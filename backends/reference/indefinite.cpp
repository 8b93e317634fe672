// The factorization of symmetric and Hermitian matrices that are not definite, with the pivots of
// J. R. Bunch and L. Kaufman, 1977, as LAPACK's sytf2 and hetf2 choose them for a lower triangle.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "backends/reference/kernels.h"
#include "backends/reference/matrix.h"
#include "mytorch/backend/matrices.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

using sdk::Matrices;
using sdk::TensorView;

// The lower triangle of a matrix and what mirrors it.
template <class E>
struct Triangle {
  Matrix<E>& a;
  bool hermitian;

  E mirrored(E x) const { return hermitian ? conjugate(x) : x; }
  double diagonal_size(int64_t i) const {
    return hermitian ? std::abs(real_part(a(i, i))) : pivot_size(a(i, i));
  }
  // Element (i, j) of either triangle has this magnitude.
  double size(int64_t i, int64_t j) const { return pivot_size(i > j ? a(i, j) : a(j, i)); }
  // The row other than i, from `first` on, of the largest element in column i; i if there is none.
  int64_t largest(int64_t i, int64_t first) const {
    int64_t best = i;
    for (int64_t j = first; j < a.rows; ++j) {
      if (j != i && (best == i || size(j, i) > size(best, i))) best = j;
    }
    return best;
  }
  // Exchanges rows and columns p < q of the trailing matrix that begins at `first`.
  void exchange(int64_t p, int64_t q, int64_t first) {
    if (p == q) return;
    for (int64_t i = q + 1; i < a.rows; ++i) std::swap(a(i, p), a(i, q));
    for (int64_t i = p + 1; i < q; ++i) {
      const E x = mirrored(a(i, p));
      a(i, p) = mirrored(a(q, i));
      a(q, i) = x;
    }
    a(q, p) = mirrored(a(q, p));
    std::swap(a(p, p), a(q, q));
    for (int64_t j = first; j < p; ++j) std::swap(a(p, j), a(q, j));
  }
};

// (x, y) D = (p, q) for the block D of two rows from k on.
template <class E>
std::pair<E, E> divide_block(const Triangle<E>& t, int64_t k, E p, E q) {
  const E low = t.a(k + 1, k), high = t.mirrored(low);
  // Scaled by the elements outside of the diagonal, which are the largest ones.
  const E first = t.a(k, k) / low, second = t.a(k + 1, k + 1) / high;
  const E scale = E(1) / (first * second - E(1));
  return {scale * (second * p / low - q / high), scale * (first * q / high - p / low)};
}

template <class E>
int factorize(Matrix<E>& a, bool hermitian, std::vector<int32_t>& pivots) {
  const int64_t n = a.rows;
  const double alpha = (1 + std::sqrt(17.0)) / 8;
  Triangle<E> t{a, hermitian};
  int info = 0;
  for (int64_t k = 0; k < n;) {
    if (hermitian) a(k, k) = real_part(a(k, k));
    const double own = t.diagonal_size(k);
    const int64_t other = t.largest(k, k);
    const double column = other == k ? 0 : t.size(other, k);
    int64_t pivot = k, rows = 1;
    if (!(std::max(own, column) > 0)) {
      if (info == 0) info = static_cast<int>(k) + 1;
      pivots[static_cast<size_t>(k)] = static_cast<int32_t>(k) + 1;
      ++k;
      continue;
    }
    if (own < alpha * column) {
      const double row = t.size(t.largest(other, k), other);
      if (own < alpha * column * (column / row)) {
        pivot = other;
        if (t.diagonal_size(other) < alpha * row) rows = 2;
      }
    }
    t.exchange(k + rows - 1, pivot, k);
    if (hermitian) {
      for (int64_t i = k; i < k + rows; ++i) a(i, i) = real_part(a(i, i));
    }
    for (int64_t j = k + rows; j < n; ++j) {
      E x = a(j, k) / a(k, k), y = 0;
      if (rows == 2) {
        const auto found = divide_block(t, k, a(j, k), a(j, k + 1));
        x = found.first, y = found.second;
      }
      for (int64_t i = j; i < n; ++i) {
        a(i, j) -= a(i, k) * t.mirrored(x);
        if (rows == 2) a(i, j) -= a(i, k + 1) * t.mirrored(y);
      }
      a(j, k) = x;
      if (rows == 2) a(j, k + 1) = y;
    }
    const auto number = static_cast<int32_t>(pivot) + 1;
    for (int64_t i = k; i < k + rows; ++i) {
      pivots[static_cast<size_t>(i)] = rows == 2 ? -number : number;
    }
    k += rows;
  }
  return info;
}

}  // namespace

void linalg_ldl_factor_ex(mt_ctx& /*ctx*/, const mt_args_linalg_ldl_factor_ex& args) {
  const auto batch = sdk::batch_shape(args.self);
  const Matrices<int32_t> infos(args.info, batch, 0), exchanges(args.pivots, batch, 1);
  sdk::visit_matrix_type(TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<const T> from(args.self, batch);
    const Matrices<T> to(args.LD, batch);
    for (int64_t b = 0; b < from.count(); ++b) {
      Matrix<Exact<T>> a = read(from, b);
      for (int64_t j = 0; j < a.columns; ++j) std::fill_n(a.column(j), j, Exact<T>(0));
      std::vector<int32_t> pivots(static_cast<size_t>(a.rows));
      std::iota(pivots.begin(), pivots.end(), 1);
      int info = 0;
      if (is_finite(a)) {
        info = factorize(a, args.hermitian != 0, pivots);
      } else {  // no pivots can be chosen
        for (int64_t j = 0; j < a.columns; ++j) {
          std::fill_n(a.column(j) + j, a.rows - j, std::numeric_limits<double>::quiet_NaN());
        }
      }
      if (info != 0 && args.check_errors) {
        sdk::fail_matrix("linalg_ldl_factor_ex", args.self, b, sdk::no_diagonal(info));
      }
      write(to, b, a);
      exchanges.store(b, pivots.data());
      *infos.at(b) = info;
    }
  });
}

void linalg_ldl_solve(mt_ctx& /*ctx*/, const mt_args_linalg_ldl_solve& args) {
  const auto batch = sdk::batch_shape(args.out);
  const Matrices<const int32_t> exchanges(args.pivots, batch, 1);
  sdk::visit_matrix_type(TensorView(args.out).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using E = Exact<T>;
    const Matrices<const T> factors(args.LD, batch), right(args.B, batch);
    const Matrices<T> to(args.out, batch);
    for (int64_t b = 0; b < to.count(); ++b) {
      Matrix<E> ld = read(factors, b), x = read(right, b);
      const Triangle<E> t{ld, args.hermitian != 0};
      const int64_t n = ld.rows;
      std::vector<int32_t> pivots(static_cast<size_t>(n));
      exchanges.load(b, pivots.data());
      sdk::check_block_pivots("linalg_ldl_solve", pivots.data(), n);
      const auto rows_at = [&](int64_t k) { return pivots[static_cast<size_t>(k)] < 0 ? 2 : 1; };
      const auto exchange = [&](int64_t k) {
        const int64_t other = std::abs(pivots[static_cast<size_t>(k)]) - 1;
        for (int64_t c = 0; c < x.columns; ++c) std::swap(x(k, c), x(other, c));
      };
      for (int64_t k = 0; k < n; k += rows_at(k)) {
        const int64_t rows = rows_at(k);
        exchange(k + rows - 1);
        for (int64_t c = 0; c < x.columns; ++c) {
          for (int64_t i = k + rows; i < n; ++i) {
            for (int64_t j = k; j < k + rows; ++j) x(i, c) -= ld(i, j) * x(j, c);
          }
          if (rows == 1) {
            x(k, c) /= t.hermitian ? E(real_part(ld(k, k))) : ld(k, k);
            continue;
          }
          const E low = ld(k + 1, k), high = t.mirrored(low);
          const E first = ld(k, k) / high, second = ld(k + 1, k + 1) / low;
          const E scale = E(1) / (first * second - E(1));
          const E p = x(k, c) / high, q = x(k + 1, c) / low;
          x(k, c) = scale * (second * p - q), x(k + 1, c) = scale * (first * q - p);
        }
      }
      for (int64_t end = n; end > 0;) {
        const int64_t rows = rows_at(end - 1), k = end - rows;
        for (int64_t c = 0; c < x.columns; ++c) {
          for (int64_t j = k; j < end; ++j) {
            for (int64_t i = end; i < n; ++i) x(j, c) -= t.mirrored(ld(i, j)) * x(i, c);
          }
        }
        exchange(end - 1);
        end = k;
      }
      write(to, b, x);
    }
  });
}

}  // namespace mytorch::reference
