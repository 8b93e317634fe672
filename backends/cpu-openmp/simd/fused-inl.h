// Expressions of several nodes with a vector form that is cheaper than the separate nodes. Code
// generation finds them in programs (../emit.py).
#if defined(MYTORCH_SIMD_FUSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_FUSED_INL_H_
#undef MYTORCH_SIMD_FUSED_INL_H_
#else
#define MYTORCH_SIMD_FUSED_INL_H_
#endif

#include "backends/cpu-openmp/simd/arith-inl.h"
#include "backends/cpu-openmp/simd/erf-inl.h"
#include "backends/cpu-openmp/simd/exp-inl.h"
#include "backends/cpu-openmp/simd/lanes-inl.h"
#include "backends/cpu-openmp/simd/log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

// 1 + erf(x / sqrt(2)), exactly 0 and 2 at the ends. What follows erf's addition to 1 does not need
// its digits near zero, so for float one rational function serves the whole range: (q + x p) / q
// with p and q polynomials in x^2, |error| < 4e-7 (2e-8 of it from the approximation: minimax by
// weighted least squares, coefficients then rounded one against another).
template <class D, class V>
HWY_INLINE V NodeTwiceNormalCdf(D d, V a) {
  using T = hn::TFromD<D>;
  if constexpr (is_f32<D> && HWY_NATIVE_FMA) {
    const V end = hn::Set(d, 5.5f);
    const V x = Clamp(d, a, hn::Neg(end), end);
    const V z = hn::Mul(x, x);
    const V p = Poly(d, z, 0x1.55cdeap-24, 0x1.74ccdp-16, 0x1.359fd6p-11, 0x1.0c1204p-6,
                     0x1.e50cbep-4, 0x1.6543d4p+0);
    const V q = Poly(d, z, 0x1.192028p-19, 0x1.0e23b8p-13, 0x1.b0035p-9, 0x1.9a729ep-5,
                     0x1.c27d1ep-2, 0x1.bfc3eap+0);
    // At the ends the rounded polynomials give 2 q and a hair below 0.
    return hn::Div(ClampMin(d, hn::MulAdd(p, x, q), hn::Zero(d)), q);
  } else {
    return hn::Add(hn::Set(d, T(1)), NodeErf(d, hn::Mul(a, hn::Set(d, T(0.70710678118654752440)))));
  }
}

// log(1 + exp(x)): the larger of x and 0, and log(1 + e) of e = exp(-|x|) <= 1, for which float has
// 2 artanh(e / (2 + e)) (minimax by Sollya's fpminimax, 2^-26).
template <class D, class V>
HWY_INLINE V NodeLog1pExp(D d, V a) {
  const V minus_abs = hn::Or(a, hn::SignBit(d));
  V rest;
  if constexpr (is_f32<D>) {
    const V e = Unscale(ExpScaled<0>(d, ClampMin(d, minus_abs, hn::Set(d, -104.0f))));
    const V t = hn::Div(hn::Add(e, e), hn::Add(e, hn::Set(d, 2.0f)));
    const V z = hn::Mul(t, t);
    const V q = Poly(d, z, 0x1.134bc6p-11, 0x1.211636p-9, 0x1.99ae06p-7, 0x1.55554cp-4);
    rest = hn::MulAdd(hn::Mul(t, z), q, t);
  } else {
    rest = NodeLog1p(d, NodeExp(d, minus_abs));
  }
  return hn::Add(ClampMin(d, a, hn::Zero(d)), rest);
}

// tanh(log(1 + n)) of n = exp(x) is m / (m + 2) with m = n (n + 2).
template <class D, class V>
HWY_INLINE V NodeTanhSoftplus(D d, V a) {
  const V two = hn::Set(d, hn::TFromD<D>(2));
  // Beyond the upper end, where n^2 would overflow, the quotient is 1.
  const V x = Clamp(d, a, SetFD(d, -104.0f, -746.0), SetFD(d, 20.0f, 40.0));
  const V n = Unscale(ExpScaled<0>(d, x));
  const V m = hn::Mul(n, hn::Add(n, two));
  return hn::Div(m, hn::Add(m, two));
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
