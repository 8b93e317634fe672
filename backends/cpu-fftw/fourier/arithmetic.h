// Products of complex numbers by their definition, and roots of one.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <numbers>
#include <vector>

#include "backends/cpu-fftw/common/library.h"
#include "backends/cpu-fftw/common/vectors.h"

namespace mytorch::fftw {

// std::complex's product looks for infinities, which takes several times as long.
template <class T>
inline Complex<T> times(Complex<T> a, Complex<T> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

// exp(sign 2 pi i k / n)
inline Complex<double> root_of_one(int64_t k, int64_t n, int sign) {
  const double angle = 2 * std::numbers::pi * (static_cast<double>(k % n) / static_cast<double>(n));
  return {std::cos(angle), sign * std::sin(angle)};
}

// to[i] = a[i] * b[i]; `to` may be a.
void multiply(const Complex<float>* a, const Complex<float>* b, int64_t n, Complex<float>* to);
void multiply(const Complex<double>* a, const Complex<double>* b, int64_t n, Complex<double>* to);

// to[16 i + k] *= coarse[i] * fine[k] for 16 fine ones.
void turn(Complex<float>* to, int64_t n, const Complex<float>* fine, const Complex<float>* coarse);
void turn(Complex<double>* to, int64_t n, const Complex<double>* fine,
          const Complex<double>* coarse);

// The frequencies k in [begin, end) and m - k of 2 m real points, with 0 < k <= m / 2, from the
// transform of m complex ones, whose parts are the even and the odd points (rows.h); and the
// inverse, without the factor 1/2. `roots` are exp(-+ pi i k / m). `to` may be `from`.
void separate(const Complex<float>* from, const Complex<float>* roots, int64_t m, int64_t begin,
              int64_t end, Complex<float>* to);
void separate(const Complex<double>* from, const Complex<double>* roots, int64_t m, int64_t begin,
              int64_t end, Complex<double>* to);
void unite(const Complex<float>* from, const Complex<float>* roots, int64_t m, int64_t begin,
           int64_t end, Complex<float>* to);
void unite(const Complex<double>* from, const Complex<double>* roots, int64_t m, int64_t begin,
           int64_t end, Complex<double>* to);

}  // namespace mytorch::fftw
