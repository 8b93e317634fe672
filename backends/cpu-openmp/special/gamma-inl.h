// 1 / Gamma(1 + a) and x^a exp(-x) / Gamma(1 + a) in double.
#if defined(MYTORCH_CPU_GAMMA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_CPU_GAMMA_INL_H_
#undef MYTORCH_CPU_GAMMA_INL_H_
#else
#define MYTORCH_CPU_GAMMA_INL_H_
#endif

#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace simd::HWY_NAMESPACE;  // NOLINT: the node functions

// 1 / Gamma(1 + t) = 1 + t r(t) for t in [-1/2, 1/2] (Chebyshev, 2^-60).
template <class D, class V>
HWY_INLINE V ReciprocalGammaRest(D d, V t) {
  return hn::Mul(t, Poly(d, t, 5.10414984171632762e-9, 4.93958013352384947e-9,
                         -2.05675043456825508e-7, 1.13350454806267928e-6, -1.25048479649271597e-6,
                         -0.0000201349556850396013, 0.000128050281372269919,
                         -0.000215241662294676544, -0.00116516759179449747, 0.00721894324591107178,
                         -0.00962197152787898986, -0.0421977345555208391, 0.166538611382291513,
                         -0.0420026350340955152, -0.655878071520253881, 0.577215664901532861));
}

// Gamma(1 + a) of a in (0, 10] is `product` / (1 + rest).
template <class V>
struct SmallGamma {
  V rest, product;
};

template <class D, class V>
HWY_INLINE SmallGamma<V> GammaFactors(D d, V a) {
  const V one = hn::Set(d, 1.0);
  const V n = hn::Round(a);
  const V t = hn::Sub(a, n);
  V product = one;
  for (int j = 1; j <= 10; ++j) {
    const V at = hn::Set(d, static_cast<double>(j));
    product = hn::Mul(product, hn::IfThenElse(hn::Ge(n, at), hn::Add(t, at), one));
  }
  return {ReciprocalGammaRest(d, t), product};
}

// log(1 / Gamma(1 + a)) for a in (0, 10], with the digits of a small a.
template <class D, class V>
HWY_INLINE V MinusLogGamma(D d, V a) {
  const SmallGamma<V> g = GammaFactors(d, a);
  const V one = hn::Set(d, 1.0);
  const V quotient = hn::Sub(hn::Div(hn::Add(one, g.rest), g.product), one);
  return NodeLog1p(d, hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.5)), g.rest, quotient));
}

// x^a exp(-x) / Gamma(1 + a) for a from 10, by Stirling's series: the exponent is
// a (mu - log(1 + mu)) with mu = x / a - 1.
template <bool kExact, class D, class V>
HWY_INLINE V LargePower(D d, V a, V x) {
  const auto set = [&](double c) HWY_ATTR { return hn::Set(d, c); };
  const V z = hn::Div(set(1.0), a);
  const V mu = hn::Mul(hn::Sub(x, a), z);
  V h = hn::Sub(mu, NodeLog1p(d, mu));
  if constexpr (kExact) {
    // Near 0 as mu r - 2 (atanh(r) - r), because log(1 + mu) = 2 atanh(r).
    const V r = hn::Div(mu, hn::Add(mu, set(2.0)));
    const V square = hn::Mul(r, r);
    const V series = Poly(d, square, 1.0 / 35, 1.0 / 33, 1.0 / 31, 1.0 / 29, 1.0 / 27, 1.0 / 25,
                          1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                          1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3);
    const V cube = hn::Mul(hn::Mul(square, r), set(-2.0));
    const V near = hn::MulAdd(cube, series, hn::Mul(mu, r));
    h = hn::IfThenElse(hn::Lt(hn::Abs(mu), set(0.5)), near, h);
  }
  const V z2 = hn::Mul(z, z);
  const V stirling =
      Poly(d, z2, -691.0 / 360360, 1.0 / 1188, -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12);
  const V exponent = hn::Neg(hn::MulAdd(stirling, z, hn::Mul(a, h)));
  const V root = hn::Sqrt(hn::Mul(z, set(0.15915494309189533577)));
  return hn::Mul(root, NodeExp(d, exponent));
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
