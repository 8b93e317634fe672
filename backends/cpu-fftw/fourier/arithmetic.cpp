#include "backends/cpu-fftw/fourier/arithmetic.h"

#include <algorithm>

namespace mytorch::fftw {
namespace {

template <class T>
[[gnu::always_inline]] inline void multiply_parts(const T* a, const T* b, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) {
    const T ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1];
    to[2 * i] = ar * br - ai * bi;
    to[2 * i + 1] = ar * bi + ai * br;
  }
}

template <class T>
[[gnu::always_inline]] inline void turn_parts(T* to, int64_t n, const T* fine, const T* coarse) {
  const int64_t blocks = n / 16;
  for (int64_t b = 0; b < blocks; ++b) {
    const T cr = coarse[2 * b], ci = coarse[2 * b + 1];
    T* x = to + 32 * b;
    for (int64_t k = 0; k < 16; ++k) {
      const T wr = fine[2 * k] * cr - fine[2 * k + 1] * ci;
      const T wi = fine[2 * k] * ci + fine[2 * k + 1] * cr;
      const T xr = x[2 * k], xi = x[2 * k + 1];
      x[2 * k] = xr * wr - xi * wi;
      x[2 * k + 1] = xr * wi + xi * wr;
    }
  }
  for (int64_t k = 16 * blocks; k < n; ++k) {
    const T *f = fine + 2 * (k - 16 * blocks), *c = coarse + 2 * blocks;
    const T wr = f[0] * c[0] - f[1] * c[1], wi = f[0] * c[1] + f[1] * c[0];
    const T xr = to[2 * k], xi = to[2 * k + 1];
    to[2 * k] = xr * wr - xi * wi;
    to[2 * k + 1] = xr * wi + xi * wr;
  }
}

template <class T>
const T* parts(const Complex<T>* x) {
  return reinterpret_cast<const T*>(x);
}
template <class T>
T* parts(Complex<T>* x) {
  return reinterpret_cast<T*>(x);
}

}  // namespace

MYTORCH_FFTW_VECTORS void multiply(const Complex<float>* a, const Complex<float>* b, int64_t n,
                                   Complex<float>* to) {
  multiply_parts(parts(a), parts(b), n, parts(to));
}
MYTORCH_FFTW_VECTORS void multiply(const Complex<double>* a, const Complex<double>* b, int64_t n,
                                   Complex<double>* to) {
  multiply_parts(parts(a), parts(b), n, parts(to));
}
MYTORCH_FFTW_VECTORS void turn(Complex<float>* to, int64_t n, const Complex<float>* fine,
                               const Complex<float>* coarse) {
  turn_parts(parts(to), n, parts(fine), parts(coarse));
}
MYTORCH_FFTW_VECTORS void turn(Complex<double>* to, int64_t n, const Complex<double>* fine,
                               const Complex<double>* coarse) {
  turn_parts(parts(to), n, parts(fine), parts(coarse));
}

}  // namespace mytorch::fftw
