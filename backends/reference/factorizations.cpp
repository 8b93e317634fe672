// Factorizations of matrices and triangular solvers, by their textbook algorithms in double
// (G. H. Golub, C. F. Van Loan, Matrix Computations, 4th edition), with LAPACK's conventions. Real
// matrices are complex ones whose conjugates are themselves.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/reference/kernels.h"
#include "backends/reference/matrix.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/matrices.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

using sdk::Matrices;
using sdk::TensorView;

// Replaces the columns of B by X with T X = B, where T is triangular, or its adjoint.
template <class E>
void solve_triangle(const Matrix<E>& t, bool upper, bool adjoint, bool unit, Matrix<E>& b) {
  const int64_t n = t.rows;
  const auto of = [&](int64_t i, int64_t j) { return adjoint ? conjugate(t(j, i)) : t(i, j); };
  const bool backward = upper != adjoint;
  for (int64_t c = 0; c < b.columns; ++c) {
    for (int64_t step = 0; step < n; ++step) {
      const int64_t i = backward ? n - 1 - step : step;
      Total<E> sum;
      sum.add(b(i, c));
      for (int64_t j = backward ? i + 1 : 0; j < (backward ? n : i); ++j) {
        sum.add(-of(i, j) * b(j, c));
      }
      b(i, c) = unit ? sum.value() : sum.value() / of(i, i);
    }
  }
}

// Factorizes the lower triangle. Returns the order of the first minor that is not positive.
template <class E>
int cholesky(Matrix<E>& a) {
  const int64_t n = a.rows;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      Total<E> sum;
      sum.add(a(i, j));
      for (int64_t k = 0; k < j; ++k) sum.add(-a(i, k) * conjugate(a(j, k)));
      if (i == j && !(real_part(sum.value()) > 0)) return static_cast<int>(j) + 1;
      a(i, j) = i == j ? E(std::sqrt(real_part(sum.value()))) : sum.value() / a(j, j);
    }
    for (int64_t i = 0; i < j; ++i) a(i, j) = 0;
  }
  return 0;
}

template <class E>
int lu(Matrix<E>& a, std::vector<int32_t>& pivots) {
  int info = 0;
  const int64_t k = std::min(a.rows, a.columns);
  pivots.resize(static_cast<size_t>(k));
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = j;
    for (int64_t i = j + 1; i < a.rows; ++i) {
      if (pivot_size(a(i, j)) > pivot_size(a(best, j))) best = i;
    }
    pivots[static_cast<size_t>(j)] = static_cast<int32_t>(best) + 1;
    for (int64_t c = 0; c < a.columns && best != j; ++c) std::swap(a(j, c), a(best, c));
    if (a(j, j) == E(0)) {
      if (info == 0) info = static_cast<int>(j) + 1;
      continue;
    }
    for (int64_t i = j + 1; i < a.rows; ++i) {
      a(i, j) /= a(j, j);
      for (int64_t c = j + 1; c < a.columns; ++c) a(i, c) -= a(i, j) * a(j, c);
    }
  }
  return info;
}

// x := (I - tau v v^H) x for the columns of x from `first` on. v has a 1 in row `at` and is that of
// `vectors` below it. Nothing is done if tau is 0, as in LAPACK, also if v is not finite.
template <class E>
void reflect(const Matrix<E>& vectors, int64_t at, E tau, Matrix<E>& x, int64_t first) {
  if (tau == E(0)) return;
  for (int64_t c = first; c < x.columns; ++c) {
    Total<E> sum;
    sum.add(x(at, c));
    for (int64_t i = at + 1; i < x.rows; ++i) sum.add(conjugate(vectors(i, at)) * x(i, c));
    const E factor = tau * sum.value();
    x(at, c) -= factor;
    for (int64_t i = at + 1; i < x.rows; ++i) x(i, c) -= factor * vectors(i, at);
  }
}

// The adjoint of each reflection makes a column real on the diagonal and 0 below it.
template <class E>
void qr(Matrix<E>& a, std::vector<E>& tau) {
  tau.assign(static_cast<size_t>(std::min(a.rows, a.columns)), E(0));
  for (int64_t j = 0; j < static_cast<int64_t>(tau.size()); ++j) {
    double below = 0;
    for (int64_t i = j + 1; i < a.rows; ++i) below = std::hypot(below, std::abs(a(i, j)));
    const E alpha = a(j, j);
    if (below == 0 && imaginary_part(alpha) == 0) continue;  // H is the identity
    const double beta = -std::copysign(std::hypot(std::abs(alpha), below), real_part(alpha));
    tau[static_cast<size_t>(j)] = (beta - alpha) / beta;
    for (int64_t i = j + 1; i < a.rows; ++i) a(i, j) /= alpha - beta;
    a(j, j) = beta;
    reflect(a, j, conjugate(tau[static_cast<size_t>(j)]), a, j + 1);
  }
}

// Jacobi's rotation (x, y) -> (c x - s w y, s x + c w y), which makes a Hermitian matrix
// (xx, xy; conjugate(xy), yy) diagonal, with w = conjugate(xy) / |xy|.
template <class E>
struct Rotation {
  Rotation(double xx, E xy, double yy) : w(conjugate(direction_of(xy))) {
    const double theta = (yy - xx) / (2 * std::abs(xy));
    const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::hypot(theta, 1.0));
    c = 1 / std::hypot(t, 1.0), s = t * c;
  }
  void turn(E& x, E& y, E phase) const {
    const E first = x, second = phase * y;
    x = c * first - s * second, y = s * first + c * second;
  }
  void columns(E& x, E& y) const { turn(x, y, w); }
  void rows(E& x, E& y) const { turn(x, y, conjugate(w)); }

  E w;
  double c, s;
};

// Jacobi's method. Returns the eigenvalues; the columns of `v` become the eigenvectors.
template <class E>
std::vector<double> eigenvalues(Matrix<E> a, Matrix<E>& v) {
  const int64_t n = a.rows;
  for (int64_t i = 0; i < n; ++i) v(i, i) = 1;
  for (int sweep = 0; sweep < 60; ++sweep) {
    double outside = 0, whole = 0;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) (i == j ? whole : outside) += squared(a(i, j));
    }
    if (outside <= 1e-36 * (whole + outside)) break;
    const double size = std::sqrt(whole + outside);
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        // The direction of a number that underflows has not the length 1.
        if (std::abs(a(p, q)) <= 1e-30 * size) continue;
        const Rotation<E> rotation(real_part(a(p, p)), a(p, q), real_part(a(q, q)));
        for (int64_t k = 0; k < n; ++k) rotation.columns(a(k, p), a(k, q));
        for (int64_t k = 0; k < n; ++k) rotation.rows(a(p, k), a(q, k));
        for (int64_t k = 0; k < n; ++k) rotation.columns(v(k, p), v(k, q));
      }
    }
  }
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = real_part(a(i, i));
  return values;
}

// Replaces columns `from` ... of `q` by vectors that are orthogonal to those before them.
template <class E>
void complete(Matrix<E>& q, int64_t from) {
  int64_t axis = 0;
  for (int64_t j = from; j < q.columns; ++axis) {
    E* column = q.column(j);
    std::fill(column, column + q.rows, E(0));
    column[axis] = 1;
    for (int repeat = 0; repeat < 2; ++repeat) {  // once more, for the rounding of the first time
      for (int64_t k = 0; k < j; ++k) {
        const E* other = q.column(k);
        const E dot = inner(other, column, q.rows);
        for (int64_t i = 0; i < q.rows; ++i) column[i] -= dot * other[i];
      }
    }
    const double norm = std::sqrt(real_part(inner(column, column, q.rows)));
    if (norm < 0.5 / static_cast<double>(q.rows)) continue;  // the axis lies in their span
    for (int64_t i = 0; i < q.rows; ++i) column[i] /= norm;
    ++j;
  }
}

// One-sided Jacobi for m >= n: a V = U S. `u` is (m, m) or (m, n); `v` is (n, n).
template <class E>
std::vector<double> singular_values(Matrix<E> a, Matrix<E>& u, Matrix<E>& v) {
  const int64_t m = a.rows, n = a.columns;
  Matrix<E> turn(n, n);
  for (int64_t i = 0; i < n; ++i) turn(i, i) = 1;
  bool turned = true;
  for (int sweep = 0; sweep < 60 && turned; ++sweep) {
    turned = false;
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        E *x = a.column(p), *y = a.column(q);
        const double xx = real_part(inner(x, x, m)), yy = real_part(inner(y, y, m));
        const E xy = inner(x, y, m);
        if (std::abs(xy) <= 1e-17 * std::sqrt(xx * yy)) continue;
        turned = true;
        const Rotation<E> rotation(xx, xy, yy);
        for (int64_t k = 0; k < m; ++k) rotation.columns(x[k], y[k]);
        for (int64_t k = 0; k < n; ++k) rotation.columns(turn(k, p), turn(k, q));
      }
    }
  }
  std::vector<double> norms(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) {
    norms[static_cast<size_t>(j)] = std::sqrt(real_part(inner(a.column(j), a.column(j), m)));
  }
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
    return norms[static_cast<size_t>(x)] > norms[static_cast<size_t>(y)];
  });
  std::vector<double> values;
  int64_t rank = 0;
  for (int64_t j = 0; j < n; ++j) {
    const int64_t from = order[static_cast<size_t>(j)];
    const double norm = norms[static_cast<size_t>(from)];
    values.push_back(norm);
    std::copy_n(turn.column(from), n, v.column(j));
    if (norm <= 1e-300 || norm <= 1e-15 * values[0]) continue;
    for (int64_t i = 0; i < m; ++i) u(i, j) = a(i, from) / norm;
    rank = j + 1;
  }
  complete(u, rank);
  return values;
}

// Makes a matrix Hermitian by a triangle, the only one that is read, and the real diagonal.
template <class E>
void mirror(Matrix<E>& a, bool upper) {
  for (int64_t i = 0; i < a.rows; ++i) {
    a(i, i) = real_part(a(i, i));
    for (int64_t j = 0; j < i; ++j) {
      (upper ? a(i, j) : a(j, i)) = conjugate(upper ? a(j, i) : a(i, j));
    }
  }
}

}  // namespace

void linalg_cholesky_ex(mt_ctx& /*ctx*/, const mt_args_linalg_cholesky_ex& args) {
  const auto batch = sdk::batch_shape(args.self);
  const Matrices<int32_t> infos(args.info, batch, 0);
  sdk::visit_matrix_type(TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using E = Exact<T>;
    const Matrices<const T> from(args.self, batch);
    const Matrices<T> to(args.L, batch);
    for (int64_t b = 0; b < from.count(); ++b) {
      Matrix<E> a = read(from, b);
      if (args.upper) a = adjoint(a);
      const int info = cholesky(a);
      if (info != 0) {
        if (args.check_errors) {
          sdk::fail_matrix("linalg_cholesky_ex", args.self, b, sdk::not_positive(info));
        }
        std::fill(a.data.begin(), a.data.end(), E(std::numeric_limits<double>::quiet_NaN()));
      }
      write(to, b, args.upper ? adjoint(a) : a);
      *infos.at(b) = info;
    }
  });
}

void linalg_lu_factor_ex(mt_ctx& /*ctx*/, const mt_args_linalg_lu_factor_ex& args) {
  const auto batch = sdk::batch_shape(args.A);
  const Matrices<int32_t> infos(args.info, batch, 0), exchanges(args.pivots, batch, 1);
  sdk::visit_matrix_type(TensorView(args.A).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using E = Exact<T>;
    const Matrices<const T> from(args.A, batch);
    const Matrices<T> to(args.LU, batch);
    for (int64_t b = 0; b < from.count(); ++b) {
      Matrix<E> a = read(from, b);
      std::vector<int32_t> pivots;
      const int info = lu(a, pivots);
      if (info != 0 && args.check_errors) {
        sdk::fail_matrix("linalg_lu_factor_ex", args.A, b, sdk::singular(info));
      }
      write(to, b, a);
      exchanges.store(b, pivots.data());
      *infos.at(b) = info;
    }
  });
}

void linalg_lu_solve(mt_ctx& /*ctx*/, const mt_args_linalg_lu_solve& args) {
  const auto batch = sdk::batch_shape(args.out);
  const Matrices<const int32_t> exchanges(args.pivots, batch, 1);
  sdk::visit_matrix_type(TensorView(args.out).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using E = Exact<T>;
    const Matrices<const T> factors(args.LU, batch), right(args.B, batch);
    const Matrices<T> to(args.out, batch);
    for (int64_t b = 0; b < to.count(); ++b) {
      const Matrix<E> packed = read(factors, b);
      Matrix<E> x = read(right, b);
      if (!args.left) x = adjoint(x);
      std::vector<int32_t> pivots(static_cast<size_t>(packed.rows));
      exchanges.load(b, pivots.data());
      for (const int32_t pivot : pivots) sdk::check_pivot("linalg_lu_solve", pivot, packed.rows);
      const auto exchange = [&](int64_t i) {
        const int64_t other = pivots[static_cast<size_t>(i)] - 1;
        for (int64_t c = 0; c < x.columns; ++c) std::swap(x(i, c), x(other, c));
      };
      if ((args.left != 0) != (args.adjoint != 0)) {
        for (int64_t i = 0; i < packed.rows; ++i) exchange(i);
        solve_triangle(packed, false, false, true, x);
        solve_triangle(packed, true, false, false, x);
      } else {
        solve_triangle(packed, true, true, false, x);
        solve_triangle(packed, false, true, true, x);
        for (int64_t i = packed.rows; i-- > 0;) exchange(i);
      }
      write(to, b, args.left ? x : adjoint(x));
    }
  });
}

void linalg_solve_triangular(mt_ctx& /*ctx*/, const mt_args_linalg_solve_triangular& args) {
  const auto batch = sdk::batch_shape(args.out);
  sdk::visit_matrix_type(TensorView(args.out).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using E = Exact<T>;
    const Matrices<const T> triangles(args.self, batch), right(args.B, batch);
    const Matrices<T> to(args.out, batch);
    for (int64_t b = 0; b < to.count(); ++b) {
      Matrix<E> x = read(right, b);
      if (!args.left) x = adjoint(x);
      solve_triangle(read(triangles, b), args.upper != 0, args.left == 0, args.unitriangular != 0,
                     x);
      write(to, b, args.left ? x : adjoint(x));
    }
  });
}

void linalg_qr(mt_ctx& /*ctx*/, const mt_args_linalg_qr& args) {
  const auto batch = sdk::batch_shape(args.A);
  const bool wants_q = std::string_view(args.mode) != "r";
  sdk::visit_matrix_type(TensorView(args.A).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using E = Exact<T>;
    const Matrices<const T> from(args.A, batch);
    const Matrices<T> to_r(args.R, batch);
    for (int64_t b = 0; b < from.count(); ++b) {
      Matrix<E> a = read(from, b);
      std::vector<E> tau;
      qr(a, tau);
      Matrix<E> r(to_r.rows(), a.columns);
      for (int64_t i = 0; i < r.rows; ++i) {
        for (int64_t j = i; j < r.columns; ++j) r(i, j) = a(i, j);
      }
      write(to_r, b, r);
      if (!wants_q) continue;
      Matrix<E> q(a.rows, r.rows);
      for (int64_t i = 0; i < q.columns; ++i) q(i, i) = 1;
      for (int64_t i = static_cast<int64_t>(tau.size()); i-- > 0;) {
        reflect(a, i, tau[static_cast<size_t>(i)], q, 0);
      }
      write(Matrices<T>(args.Q, batch), b, q);
    }
  });
}

void geqrf(mt_ctx& /*ctx*/, const mt_args_geqrf& args) {
  const auto batch = sdk::batch_shape(args.self);
  sdk::visit_matrix_type(TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using E = Exact<T>;
    const Matrices<const T> from(args.self, batch);
    const Matrices<T> to(args.a, batch), factors(args.tau, batch, 1);
    for (int64_t b = 0; b < from.count(); ++b) {
      Matrix<E> a = read(from, b);
      std::vector<E> tau;
      qr(a, tau);
      write(to, b, a);
      factors.store(b, tau.data());
    }
  });
}

void linalg_householder_product(mt_ctx& /*ctx*/, const mt_args_linalg_householder_product& args) {
  const auto batch = sdk::batch_shape(args.input);
  sdk::visit_matrix_type(TensorView(args.input).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using E = Exact<T>;
    const Matrices<const T> from(args.input, batch), factors(args.tau, batch, 1);
    const Matrices<T> to(args.out, batch);
    for (int64_t b = 0; b < from.count(); ++b) {
      const Matrix<E> vectors = read(from, b);
      std::vector<E> tau(static_cast<size_t>(factors.rows()));
      factors.load(b, tau.data());
      Matrix<E> q(vectors.rows, vectors.columns);
      for (int64_t i = 0; i < q.columns; ++i) q(i, i) = 1;
      for (int64_t i = factors.rows(); i-- > 0;) {
        reflect(vectors, i, tau[static_cast<size_t>(i)], q, 0);
      }
      write(to, b, q);
    }
  });
}

void linalg_eigh(mt_ctx& /*ctx*/, const mt_args_linalg_eigh_forward& args) {
  const auto batch = sdk::batch_shape(args.self);
  const bool upper = args.UPLO[0] == 'U' || args.UPLO[0] == 'u';
  sdk::visit_matrix_type(TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using E = Exact<T>;
    const Matrices<const T> from(args.self, batch);
    const Matrices<sdk::RealOf<T>> to_values(args.eigenvalues, batch, 1);
    for (int64_t b = 0; b < from.count(); ++b) {
      Matrix<E> a = read(from, b);
      mirror(a, upper);
      if (!is_finite(a)) sdk::fail_matrix("linalg_eigh", args.self, b, sdk::kNotFinite);
      Matrix<E> v(a.rows, a.rows), sorted = v;
      const std::vector<double> values = eigenvalues(a, v);
      std::vector<int64_t> order(values.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
        return values[static_cast<size_t>(x)] < values[static_cast<size_t>(y)];
      });
      std::vector<double> ascending;
      for (int64_t j = 0; j < a.rows; ++j) {
        const int64_t at = order[static_cast<size_t>(j)];
        ascending.push_back(values[static_cast<size_t>(at)]);
        const E factor = sdk::unique_factor(v.column(at), a.rows);
        for (int64_t i = 0; i < a.rows; ++i) sorted(i, j) = factor * v(i, at);
      }
      to_values.store(b, ascending.data());
      if (args.compute_v) write(Matrices<T>(args.eigenvectors, batch), b, sorted);
    }
  });
}

void linalg_svd(mt_ctx& /*ctx*/, const mt_args_linalg_svd_forward& args) {
  const auto batch = sdk::batch_shape(args.self);
  sdk::visit_matrix_type(TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using E = Exact<T>;
    const Matrices<const T> from(args.self, batch);
    const Matrices<sdk::RealOf<T>> to_values(args.S, batch, 1);
    for (int64_t b = 0; b < from.count(); ++b) {
      Matrix<E> a = read(from, b);
      if (!is_finite(a)) sdk::fail_matrix("linalg_svd", args.self, b, sdk::kNotFinite);
      const bool wide = a.rows < a.columns;
      if (wide) a = adjoint(a);
      const int64_t m = a.rows, n = a.columns;
      Matrix<E> u(m, args.full_matrices ? m : n), v(n, n);
      const std::vector<double> values = singular_values(a, u, v);
      if (wide) std::swap(u, v);  // the adjoint's
      for (int64_t j = 0; j < n; ++j) {
        const E factor = sdk::unique_factor(u.column(j), u.rows);
        for (int64_t i = 0; i < u.rows; ++i) u(i, j) *= factor;
        for (int64_t i = 0; i < v.rows; ++i) v(i, j) *= factor;
      }
      to_values.store(b, values.data());
      if (!args.compute_uv) continue;
      write(Matrices<T>(args.U, batch), b, u);
      write(Matrices<T>(args.Vh, batch), b, adjoint(v));
    }
  });
}

void linalg_lu_permutation(mt_ctx& /*ctx*/, const mt_args_linalg_lu_permutation& args) {
  const auto batch = sdk::batch_shape(args.out, 1);
  const Matrices<const int32_t> exchanges(args.pivots, batch, 1);
  const Matrices<int64_t> to(args.out, batch, 1);
  for (int64_t b = 0; b < to.count(); ++b) {
    std::vector<int64_t> order(static_cast<size_t>(to.rows()));
    std::iota(order.begin(), order.end(), 0);
    for (int64_t i = 0; i < exchanges.rows(); ++i) {
      const int64_t pivot = exchanges.at(b)[i * exchanges.row_stride()];
      sdk::check_pivot("linalg_lu_permutation", pivot, to.rows());
      std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(pivot - 1)]);
    }
    to.store(b, order.data());
  }
}

}  // namespace mytorch::reference
