#include "backends/cpu-fftw/fourier/batch.h"

#include <cmath>
#include <numbers>

#include "backends/cpu-fftw/fourier/arithmetic.h"

// Unlike MYTORCH_FFTW_VECTORS, products may be fused with sums: every line is in vectors.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MYTORCH_FFTW_BATCH                                                     \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), \
                 optimize("O3", "fp-contract=fast")))
#else
#define MYTORCH_FFTW_BATCH
#endif

namespace mytorch::fftw {
namespace {

#define MYTORCH_INLINE [[gnu::always_inline]] inline

// A point in registers.
template <class T>
struct Value {
  Lanes<T> re, im;
};
template <class T>
MYTORCH_INLINE Value<T> operator+(Value<T> a, Value<T> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class T>
MYTORCH_INLINE Value<T> operator-(Value<T> a, Value<T> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class T>
MYTORCH_INLINE Value<T> minus_i(Value<T> a) {
  return {a.im, -a.re};
}
template <class T>
MYTORCH_INLINE Value<T> times(Value<T> a, Complex<T> w) {
  return {a.re * w.real() - a.im * w.imag(), a.im * w.real() + a.re * w.imag()};
}

template <class T>
MYTORCH_INLINE void butterfly2(Value<T>& a, Value<T>& b) {
  const Value<T> sum = a + b;
  b = a - b;
  a = sum;
}
template <class T>
MYTORCH_INLINE void butterfly4(Value<T>& a, Value<T>& b, Value<T>& c, Value<T>& d) {
  const Value<T> e = a + c, f = a - c, g = b + d, h = minus_i(b - d);
  a = e + g;
  b = f + h;
  c = e - g;
  d = f - h;
}

// cos and sin of 2 pi k / kRadix for k = 0, 1, ...
template <int kRadix>
constexpr double kCosines[kRadix] = {};
template <int kRadix>
constexpr double kSines[kRadix] = {};
template <>
constexpr double kCosines<3>[] = {1, -0.5, -0.5};
template <>
constexpr double kSines<3>[] = {0, 0.86602540378443864676, -0.86602540378443864676};
template <>
constexpr double kCosines<5>[] = {1, 0.3090169943749474241, -0.8090169943749474241,
                                  -0.8090169943749474241, 0.3090169943749474241};
template <>
constexpr double kSines<5>[] = {0, 0.95105651629515357212, 0.58778525229247312917,
                                -0.58778525229247312917, -0.95105651629515357212};
template <>
constexpr double kCosines<7>[] = {1,
                                  0.62348980185873353053,
                                  -0.2225209339563144043,
                                  -0.90096886790241912624,
                                  -0.90096886790241912624,
                                  -0.2225209339563144043,
                                  0.62348980185873353053};
template <>
constexpr double kSines<7>[] = {0,
                                0.78183148246802980871,
                                0.97492791218182360702,
                                0.43388373911755812048,
                                -0.43388373911755812048,
                                -0.97492791218182360702,
                                -0.78183148246802980871};

// The transform of kRadix points, in place.
template <int kRadix, class T>
MYTORCH_INLINE void butterfly(Value<T> (&x)[kRadix]) {
  if constexpr (kRadix == 2) {
    butterfly2(x[0], x[1]);
  } else if constexpr (kRadix == 4) {
    butterfly4(x[0], x[1], x[2], x[3]);
  } else if constexpr (kRadix == 8) {
    butterfly4(x[0], x[2], x[4], x[6]);
    butterfly4(x[1], x[3], x[5], x[7]);
    const T h = static_cast<T>(std::numbers::sqrt2 / 2);
    const Value<T> b = {(x[3].re + x[3].im) * h, (x[3].im - x[3].re) * h};
    const Value<T> c = minus_i(x[5]);
    const Value<T> d = {(x[7].im - x[7].re) * h, (x[7].re + x[7].im) * -h};
    const Value<T> e = x[0], f = x[2], g = x[4], k = x[6], a = x[1];
    x[0] = e + a, x[4] = e - a;
    x[1] = f + b, x[5] = f - b;
    x[2] = g + c, x[6] = g - c;
    x[3] = k + d, x[7] = k - d;
  } else {
    // Of odd primes: sums and differences of opposite points.
    constexpr int half = kRadix / 2;
    Value<T> sum[half], difference[half];
    const Value<T> first = x[0];
#pragma GCC unroll 8
    for (int j = 0; j < half; ++j) {
      sum[j] = x[j + 1] + x[kRadix - 1 - j];
      difference[j] = minus_i(x[j + 1] - x[kRadix - 1 - j]);
      x[0] = x[0] + sum[j];
    }
#pragma GCC unroll 8
    for (int k = 1; k <= half; ++k) {
      Value<T> even = first, odd = {};
#pragma GCC unroll 8
      for (int j = 0; j < half; ++j) {
        const T c = static_cast<T>(kCosines<kRadix>[(j + 1) * k % kRadix]);
        const T s = static_cast<T>(kSines<kRadix>[(j + 1) * k % kRadix]);
        even = {even.re + sum[j].re * c, even.im + sum[j].im * c};
        odd = {odd.re + difference[j].re * s, odd.im + difference[j].im * s};
      }
      x[k] = even + odd;
      x[kRadix - k] = even - odd;
    }
  }
}

// The parts of points: those of point k are at [2 k].
template <class T>
struct Parts {
  Lanes<T>*re, *im;
};

// A stage of Stockham's method: point q + side (p + groups j) of group p takes part j, and the
// results go to q + side (radix p + j), turned by the powers of the group's root.
template <int kRadix, class T>
MYTORCH_INLINE void stage(Parts<T> from, Parts<T> to, int64_t groups, int64_t side,
                          const Complex<T>* roots) {
  for (int64_t p = 0; p < groups; ++p) {
    for (int64_t q = 0; q < side; ++q) {
      Value<T> x[kRadix];
#pragma GCC unroll 8
      for (int j = 0; j < kRadix; ++j) {
        const int64_t at = 2 * (q + side * (p + groups * j));
        x[j] = {from.re[at], from.im[at]};
      }
      butterfly<kRadix>(x);
      const int64_t first = q + side * kRadix * p;
      to.re[2 * first] = x[0].re, to.im[2 * first] = x[0].im;
#pragma GCC unroll 8
      for (int j = 1; j < kRadix; ++j) {
        const Value<T> y = p == 0 ? x[j] : times(x[j], roots[p * (kRadix - 1) + j - 1]);
        to.re[2 * (first + side * j)] = y.re, to.im[2 * (first + side * j)] = y.im;
      }
    }
  }
}

template <class T>
MYTORCH_INLINE void any_stage(int64_t radix, Parts<T> from, Parts<T> to, int64_t groups,
                              int64_t side, const Complex<T>* roots) {
  switch (radix) {
    case 8:
      return stage<8>(from, to, groups, side, roots);
    case 4:
      return stage<4>(from, to, groups, side, roots);
    case 2:
      return stage<2>(from, to, groups, side, roots);
    case 3:
      return stage<3>(from, to, groups, side, roots);
    case 5:
      return stage<5>(from, to, groups, side, roots);
    default:
      return stage<7>(from, to, groups, side, roots);
  }
}

template <class T>
MYTORCH_INLINE void separate_all(const Point<T>* from, const Complex<T>* roots, int64_t m,
                                 Point<T>* to) {
  const Point<T> first = from[0];
  to[0] = {first.re + first.im, Lanes<T>{}};
  to[m] = {first.re - first.im, Lanes<T>{}};
  for (int64_t k = 1; k <= m / 2; ++k) {
    const Value<T> a = {from[k].re, from[k].im}, b = {from[m - k].re, -from[m - k].im};
    const Value<T> even = {(a.re + b.re) * T(0.5), (a.im + b.im) * T(0.5)};
    const Value<T> odd = times(Value<T>{(a.im - b.im) * T(0.5), (b.re - a.re) * T(0.5)}, roots[k]);
    to[k] = {even.re + odd.re, even.im + odd.im};
    to[m - k] = {even.re - odd.re, odd.im - even.im};
  }
}

template <class T>
MYTORCH_INLINE void unite_all(const Point<T>* from, const Complex<T>* roots, int64_t m,
                              Point<T>* to) {
  to[0] = {from[0].re + from[m].re, from[0].re - from[m].re};
  for (int64_t k = 1; k <= m / 2; ++k) {
    const Value<T> a = {from[k].re, from[k].im}, b = {from[m - k].re, -from[m - k].im};
    const Value<T> even = a + b, odd = times(a - b, roots[k]);
    to[k] = {even.re - odd.im, even.im + odd.re};
    to[m - k] = {even.re + odd.im, odd.re - even.im};
  }
}

#define MYTORCH_BATCH(T, suffix)                                                                   \
  MYTORCH_FFTW_BATCH void stage_##suffix(int64_t radix, Parts<T> from, Parts<T> to,                \
                                         int64_t groups, int64_t side, const Complex<T>* roots) {  \
    any_stage(radix, from, to, groups, side, roots);                                               \
  }                                                                                                \
  MYTORCH_FFTW_BATCH void separate_##suffix(const Point<T>* from, const Complex<T>* roots,         \
                                            int64_t m, Point<T>* to) {                             \
    separate_all(from, roots, m, to);                                                              \
  }                                                                                                \
  MYTORCH_FFTW_BATCH void unite_##suffix(const Point<T>* from, const Complex<T>* roots, int64_t m, \
                                         Point<T>* to) {                                           \
    unite_all(from, roots, m, to);                                                                 \
  }
MYTORCH_BATCH(float, float)
MYTORCH_BATCH(double, double)
#undef MYTORCH_BATCH

void run_stage(int64_t radix, Parts<float> from, Parts<float> to, int64_t groups, int64_t side,
               const Complex<float>* roots) {
  stage_float(radix, from, to, groups, side, roots);
}
void run_stage(int64_t radix, Parts<double> from, Parts<double> to, int64_t groups, int64_t side,
               const Complex<double>* roots) {
  stage_double(radix, from, to, groups, side, roots);
}

constexpr int64_t kLongest = 2048, kShortest = 8;

// Returns the radices of n, or nothing if it has other factors.
std::vector<int64_t> radices_of(int64_t n) {
  std::vector<int64_t> found;
  for (const int64_t radix : {7, 5, 3}) {
    for (; n % radix == 0; n /= radix) found.push_back(radix);
  }
  // 16 is 4 * 4, because a stage of 2 costs as much as one of 8.
  for (; n % 8 == 0 && n != 16; n /= 8) found.push_back(8);
  for (; n % 4 == 0; n /= 4) found.push_back(4);
  for (; n % 2 == 0; n /= 2) found.push_back(2);
  if (n != 1) found.clear();
  return found;
}

}  // namespace

template <class T>
std::shared_ptr<const Batch<T>> Batch<T>::of(int64_t n, bool forward) {
  if (n < kShortest || n > kLongest || radices_of(n).empty()) return nullptr;
  return std::make_shared<const Batch>(n, forward);
}

template <class T>
Batch<T>::Batch(int64_t n, bool forward) : forward_(forward) {
  int64_t left = n;
  for (const int64_t radix : radices_of(n)) {
    Stage made{radix, left / radix, n / left, {}};
    for (int64_t p = 0; p < made.groups; ++p) {
      for (int64_t j = 1; j < radix; ++j) {
        made.roots.push_back(Complex<T>(root_of_one(p * j, left, -1)));
      }
    }
    stages_.push_back(std::move(made));
    left /= radix;
  }
}

// The inverse transform is the one of exchanged parts.
template <class T>
Point<T>* Batch<T>::run(Point<T>* x, Point<T>* y) const {
  const auto parts = [&](Point<T>* p) {
    return forward_ ? Parts<T>{&p->re, &p->im} : Parts<T>{&p->im, &p->re};
  };
  for (const Stage& each : stages_) {
    run_stage(each.radix, parts(x), parts(y), each.groups, each.side, each.roots.data());
    std::swap(x, y);
  }
  return x;
}

template <>
void separate_points(const Point<float>* from, const Complex<float>* roots, int64_t m,
                     Point<float>* to) {
  separate_float(from, roots, m, to);
}
template <>
void separate_points(const Point<double>* from, const Complex<double>* roots, int64_t m,
                     Point<double>* to) {
  separate_double(from, roots, m, to);
}
template <>
void unite_points(const Point<float>* from, const Complex<float>* roots, int64_t m,
                  Point<float>* to) {
  unite_float(from, roots, m, to);
}
template <>
void unite_points(const Point<double>* from, const Complex<double>* roots, int64_t m,
                  Point<double>* to) {
  unite_double(from, roots, m, to);
}

template class Batch<float>;
template class Batch<double>;

}  // namespace mytorch::fftw
