// Eigenvalues and eigenvectors of general matrices, by the QR algorithm with shifts
// (G. H. Golub, C. F. Van Loan, Matrix Computations, 4th edition, 7.5), in complex numbers.
#include <cmath>
#include <complex>
#include <cstdint>
#include <utility>
#include <vector>

#include "backends/reference/kernels.h"
#include "backends/reference/matrix.h"
#include "mytorch/backend/matrices.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

using sdk::Matrices;
using Complex = std::complex<double>;

// Makes `h` zero below its first subdiagonal, by reflections of both sides, which `q` collects.
void to_hessenberg(Matrix<Complex>& h, Matrix<Complex>& q) {
  const int64_t n = h.rows;
  for (int64_t k = 0; k + 2 < n; ++k) {
    std::vector<Complex> u(static_cast<size_t>(n), 0);
    double norm = 0;
    for (int64_t i = k + 1; i < n; ++i) {
      u[static_cast<size_t>(i)] = h(i, k);
      norm = std::hypot(norm, std::abs(h(i, k)));
    }
    if (norm == 0) continue;
    u[static_cast<size_t>(k + 1)] += direction_of(h(k + 1, k)) * norm;
    const double length = real_part(inner(u.data(), u.data(), n));
    for (int64_t j = 0; j < n; ++j) {
      const Complex factor = 2.0 * inner(u.data(), h.column(j), n) / length;
      for (int64_t i = k + 1; i < n; ++i) h(i, j) -= factor * u[static_cast<size_t>(i)];
    }
    for (Matrix<Complex>* each : {&h, &q}) {
      for (int64_t i = 0; i < n; ++i) {
        Complex sum = 0;
        for (int64_t j = k + 1; j < n; ++j) sum += (*each)(i, j) * u[static_cast<size_t>(j)];
        for (int64_t j = k + 1; j < n; ++j) {
          (*each)(i, j) -= 2.0 * sum / length * conjugate(u[static_cast<size_t>(j)]);
        }
      }
    }
  }
}

// The eigenvalue of the last two rows and columns up to `last` that is nearer to the last element.
Complex shift_of(const Matrix<Complex>& h, int64_t last) {
  const Complex a = h(last - 1, last - 1), b = h(last - 1, last), c = h(last, last - 1),
                d = h(last, last);
  const Complex half = (a - d) / 2.0, root = std::sqrt(half * half + b * c);
  const Complex one = d + half + root, other = d + half - root;
  return std::abs(one - d) < std::abs(other - d) ? one : other;
}

// One step of the QR algorithm on rows and columns first ... last.
void step(Matrix<Complex>& h, Matrix<Complex>& q, int64_t first, int64_t last, Complex shift) {
  const int64_t n = h.rows;
  for (int64_t i = first; i <= last; ++i) h(i, i) -= shift;
  std::vector<std::pair<Complex, Complex>> rotations;
  for (int64_t k = first; k < last; ++k) {
    const double length = std::hypot(std::abs(h(k, k)), std::abs(h(k + 1, k)));
    const Complex c = length == 0 ? 1 : h(k, k) / length;
    const Complex s = length == 0 ? 0 : h(k + 1, k) / length;
    rotations.emplace_back(c, s);
    for (int64_t j = k; j < n; ++j) {
      const Complex x = h(k, j), y = h(k + 1, j);
      h(k, j) = conjugate(c) * x + conjugate(s) * y, h(k + 1, j) = c * y - s * x;
    }
  }
  for (int64_t k = first; k < last; ++k) {
    const auto [c, s] = rotations[static_cast<size_t>(k - first)];
    for (Matrix<Complex>* each : {&h, &q}) {
      for (int64_t i = 0; i < n; ++i) {
        const Complex x = (*each)(i, k), y = (*each)(i, k + 1);
        (*each)(i, k) = c * x + s * y, (*each)(i, k + 1) = conjugate(c) * y - conjugate(s) * x;
      }
    }
  }
  for (int64_t i = first; i <= last; ++i) h(i, i) += shift;
}

// Returns whether `h` became triangular.
bool to_triangular(Matrix<Complex>& h, Matrix<Complex>& q) {
  int steps = 0;
  for (int64_t last = h.rows - 1; last > 0;) {
    int64_t first = last;
    while (first > 0 &&
           std::abs(h(first, first - 1)) >
               1e-16 * (std::abs(h(first, first)) + std::abs(h(first - 1, first - 1)))) {
      --first;
    }
    if (first > 0) h(first, first - 1) = 0;
    if (first == last) {
      --last;
      steps = 0;
      continue;
    }
    if (++steps > 1000) return false;
    // Another shift, because a cycle is possible.
    const bool unusual = steps % 10 == 0;
    step(h, q, first, last,
         unusual ? h(last, last) + std::abs(h(last, last - 1)) : shift_of(h, last));
  }
  return true;
}

// Column k becomes the eigenvector of the eigenvalue h(k, k).
void eigenvectors(const Matrix<Complex>& h, const Matrix<Complex>& q, Matrix<Complex>& v) {
  const int64_t n = h.rows;
  double largest = 0;
  for (const Complex& each : h.data) largest = std::max(largest, std::abs(each));
  for (int64_t k = 0; k < n; ++k) {
    std::vector<Complex> y(static_cast<size_t>(n), 0);
    y[static_cast<size_t>(k)] = 1;
    for (int64_t i = k; i-- > 0;) {
      Complex sum = 0;
      for (int64_t j = i + 1; j <= k; ++j) sum += h(i, j) * y[static_cast<size_t>(j)];
      Complex gap = h(i, i) - h(k, k);
      if (std::abs(gap) < 1e-16 * largest) gap = 1e-16 * largest;
      y[static_cast<size_t>(i)] = sum == 0.0 ? 0 : -sum / gap;
    }
    for (int64_t i = 0; i < n; ++i) {
      v(i, k) = 0;
      for (int64_t j = 0; j <= k; ++j) v(i, k) += q(i, j) * y[static_cast<size_t>(j)];
    }
    const double norm = std::sqrt(real_part(inner(v.column(k), v.column(k), n)));
    for (int64_t i = 0; i < n; ++i) v(i, k) /= norm;
  }
}

}  // namespace

void linalg_eig(mt_ctx& /*ctx*/, const mt_args_linalg_eig_forward& args) {
  const auto batch = sdk::batch_shape(args.self);
  sdk::visit_matrix_type(sdk::TensorView(args.self).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Result = std::complex<sdk::RealOf<T>>;
    const Matrices<const T> from(args.self, batch);
    const Matrices<Result> to_values(args.eigenvalues, batch, 1);
    for (int64_t b = 0; b < from.count(); ++b) {
      const Matrix<Exact<T>> a = read(from, b);
      if (!is_finite(a)) sdk::fail_matrix("linalg_eig", args.self, b, sdk::kNotFinite);
      const int64_t n = a.rows;
      Matrix<Complex> h(n, n), q(n, n), v(n, n), sorted(n, n);
      for (size_t i = 0; i < a.data.size(); ++i) h.data[i] = a.data[i];
      for (int64_t i = 0; i < n; ++i) q(i, i) = 1;
      to_hessenberg(h, q);
      if (!to_triangular(h, q)) {
        sdk::fail_matrix("linalg_eig", args.self, b, "the algorithm failed to converge");
      }
      std::vector<Complex> values, ordered;
      for (int64_t i = 0; i < n; ++i) values.push_back(h(i, i));
      const std::vector<int64_t> order = sdk::order_of_eigenvalues(values.data(), n);
      for (const int64_t at : order) ordered.push_back(values[static_cast<size_t>(at)]);
      to_values.store(b, ordered.data());
      if (!args.compute_v) continue;
      eigenvectors(h, q, v);
      for (int64_t j = 0; j < n; ++j) {
        const int64_t at = order[static_cast<size_t>(j)];
        const Complex factor = sdk::unique_factor(v.column(at), n);
        for (int64_t i = 0; i < n; ++i) sorted(i, j) = factor * v(i, at);
      }
      Matrices<Result>(args.eigenvectors, batch).store(b, sorted.data.data());
    }
  });
}

}  // namespace mytorch::reference
