// The normal distribution function, and the inverses of it and of erf.
#if defined(MYTORCH_SIMD_NORMAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_NORMAL_INL_H_
#undef MYTORCH_SIMD_NORMAL_INL_H_
#else
#define MYTORCH_SIMD_NORMAL_INL_H_
#endif

#include "backends/cpu-openmp/simd/erf-inl.h"
#include "backends/cpu-openmp/simd/lanes-inl.h"
#include "backends/cpu-openmp/simd/log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

// Half of erfc(-a / sqrt(2)). The exponent is -a^2 / 2, which the square of the rounded quotient
// would not give to all digits.
template <class D, class V>
HWY_INLINE V NodeNdtr(D d, V a) {
  using T = hn::TFromD<D>;
  if constexpr (HWY_NATIVE_FMA) {
    const V half = hn::Set(d, T(0.5)), one = hn::Set(d, T(1));
    const V root = hn::Set(d, T(0.70710678118654752440));
    const V x = ClampMax(d, hn::Abs(a), SetFD(d, 14.25f, 38.6));
    const V twice = hn::Mul(x, x);
    const V square = hn::Mul(half, twice), error = hn::Mul(half, hn::MulSub(x, x, twice));
    V below;
    if constexpr (is_f32<D>) {
      // The function of ErfcOfSize, of x / sqrt(2) and halved.
      const V p = Poly(d, x, 0x1.0d64c2p-8, 0x1.4c8dccp-5, 0x1.770882p-3, 0x1.c0a84cp-2, 0.5);
      const V q = Poly(d, x, 0x1.51a17ep-7, 0x1.a0d234p-4, 0x1.e06e66p-2, 0x1.33b862p+0,
                       0x1.ac9656p+0, 1.0);
      below = ScaledQuotient(d, square, error, p, q);
    } else {
      const V t = hn::Mul(x, root);
      const V q = hn::MulAdd(hn::Set(d, 4.0), t, hn::Set(d, 2.0));
      below = ScaledQuotient(d, square, error, ErfcSmoothPart(d, t), q);
    }
    const V outer = hn::IfThenElse(hn::Lt(a, hn::Zero(d)), below, hn::Sub(one, below));
    const V u = hn::Mul(a, root);
    const V inner = hn::MulAdd(half, ErfPoly(d, u, hn::Mul(u, u)), half);
    return hn::IfThenElse(hn::Lt(x, SetFD(d, 0.6f, 1.0)), inner, outer);
  } else {
    return MapLanes(d, a, [](T v) -> T {
      return static_cast<T>(0.5L * std::erfc(v * -0.70710678118654752440L));
    });
  }
}

// erfinv(y) is y * f(u) with u = -log2(1 - y^2), and f is smooth: a rational function with positive
// coefficients serves [0, 24], where u lies for every float y (minimax, 2^-27).
template <class D, class V>
HWY_INLINE V FloatErfinv(D d, V y) {
  const V one = hn::Set(d, 1.0f);
  const V rest =
      HWY_NATIVE_FMA ? hn::NegMulAdd(y, y, one) : hn::Mul(hn::Sub(one, y), hn::Add(one, y));
  const V u = hn::Neg(NodeLog2(d, rest));
  const V p = Horner(d, u, 0x1.e3e07cp-27, 0x1.148586p-17, 0x1.05421ap-12, 0x1.0ad736p-8,
                     0x1.64077ap-5, 0x1.408d96p-2, 0x1.4752c0p+0);
  const V q = Horner(d, u, 0x1.649f70p-21, 0x1.38d81cp-14, 0x1.102d58p-10, 0x1.7fac34p-6,
                     0x1.7672b8p-4, 0x1.715840p+0);
  const V inner = hn::Mul(y, hn::Div(p, q));
  return hn::IfThenElse(hn::Eq(rest, hn::Zero(d)), hn::CopySign(SetInf(d), y), inner);
}

// The same with y = 2 p - 1 and 1 - y^2 = 4 p (1 - p), where u may reach 147: beyond 23, a rational
// function of its root takes over.
template <class D, class V>
HWY_INLINE V FloatNdtri(D d, V p) {
  const V one = hn::Set(d, 1.0f), half = hn::Set(d, 0.5f);
  const V center = hn::Sub(p, half);
  const V tail = hn::Min(p, hn::Sub(one, p));
  const V product = hn::Mul(tail, hn::Sub(one, tail));
  const V u = hn::Sub(hn::Set(d, -2.0f), NodeLog2(d, product));
  const V a = Horner(d, u, 0x1.c8b032p-25, 0x1.04fbecp-15, 0x1.ed281cp-11, 0x1.f7b1bcp-7,
                     0x1.500636p-3, 0x1.2e8a9ep+0, 0x1.34ee66p+2);
  const V b = Horner(d, u, 0x1.dc0098p-21, 0x1.a1919ep-14, 0x1.6b49d8p-10, 0x1.000db8p-5,
                     0x1.f3cb70p-4, 0x1.ecfba2p+0);
  V r = hn::Mul(center, hn::Div(a, b));
  const auto far = hn::Gt(u, hn::Set(d, 23.0f));
  if (HWY_UNLIKELY(!hn::AllFalse(d, far))) {
    const V s = hn::Sqrt(u);
    const V c =
        Horner(d, s, 0x1.c89100p-4, 0x1.3ac1e6p+0, 0x1.2e1ef4p+0, 0x1.91c00ep-1, 0x1.0db0c4p+0);
    const V e = Horner(d, s, 0x1.83b78ap-4, 0x1.0bcb2ap+0, 0x1.3a94d4p+0, 0x1.6790b6p+0);
    const V outer = hn::IfThenElse(hn::Eq(product, hn::Zero(d)), SetInf(d), hn::Div(c, e));
    r = hn::IfThenElse(far, hn::CopySign(outer, center), r);
  }
  return r;
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
