// A matrix of numbers in double or complex double, by columns, in which the reference factorizes.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "backends/reference/exact.h"
#include "mytorch/backend/matrices.h"

namespace mytorch::reference {

// The type in which elements of T are computed.
template <class T>
using Exact = std::conditional_t<sdk::is_complex_number<T>, std::complex<double>, double>;

inline double real_part(double x) { return x; }
inline double real_part(std::complex<double> z) { return z.real(); }
inline double imaginary_part(double /*x*/) { return 0; }
inline double imaginary_part(std::complex<double> z) { return z.imag(); }
inline double conjugate(double x) { return x; }
inline std::complex<double> conjugate(std::complex<double> z) { return std::conj(z); }
inline double squared(double x) { return x * x; }
inline double squared(std::complex<double> z) { return std::norm(z); }
// The magnitude by which LAPACK chooses pivots.
inline double pivot_size(double x) { return std::abs(x); }
inline double pivot_size(std::complex<double> z) { return std::abs(z.real()) + std::abs(z.imag()); }
// x / |x|, or 1.
template <class E>
E direction_of(E x) {
  return x == E(0) ? E(1) : x / std::abs(x);
}

// A compensated sum.
template <class E>
class Total {
 public:
  void add(E value) { real_.add(real_part(value)), imaginary_.add(imaginary_part(value)); }
  E value() const {
    if constexpr (std::is_same_v<E, double>) {
      return real_.value();
    } else {
      return {real_.value(), imaginary_.value()};
    }
  }

 private:
  Sum<double> real_, imaginary_;
};

// A matrix in memory, by columns.
template <class E>
struct Matrix {
  Matrix(int64_t m, int64_t n) : rows(m), columns(n), data(static_cast<size_t>(m * n), E(0)) {}
  E& operator()(int64_t i, int64_t j) { return data[static_cast<size_t>(j * rows + i)]; }
  E operator()(int64_t i, int64_t j) const { return data[static_cast<size_t>(j * rows + i)]; }
  E* column(int64_t j) { return data.data() + j * rows; }

  int64_t rows, columns;
  std::vector<E> data;
};

template <class T>
Matrix<Exact<T>> read(const sdk::Matrices<const T>& from, int64_t b) {
  Matrix<Exact<T>> x(from.rows(), from.columns());
  from.load(b, x.data.data());
  return x;
}
template <class T>
void write(const sdk::Matrices<T>& to, int64_t b, const Matrix<Exact<T>>& x) {
  to.store(b, x.data.data());
}

template <class E>
Matrix<E> adjoint(const Matrix<E>& x) {
  Matrix<E> t(x.columns, x.rows);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < x.columns; ++j) t(j, i) = conjugate(x(i, j));
  }
  return t;
}

// Returns x^H y.
template <class E>
E inner(const E* x, const E* y, int64_t n) {
  E sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += conjugate(x[i]) * y[i];
  return sum;
}

template <class E>
bool is_finite(const Matrix<E>& x) {
  return std::all_of(x.data.begin(), x.data.end(), [](E e) {
    return std::isfinite(real_part(e)) && std::isfinite(imaginary_part(e));
  });
}

}  // namespace mytorch::reference
