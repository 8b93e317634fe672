// pow, with C's special cases for floating point and ATen's for integers.
//
// float goes through double: log2 to 2^-49 times the exponent leaves an error far below float's
// precision for every result that float can hold. double calls libm.
#if defined(MYTORCH_SIMD_POW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_POW_INL_H_
#undef MYTORCH_SIMD_POW_INL_H_
#else
#define MYTORCH_SIMD_POW_INL_H_
#endif

#include "backends/cpu-openmp/simd/exp-inl.h"
#include "backends/cpu-openmp/simd/lanes-inl.h"
#include "backends/cpu-openmp/simd/log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// 2^(y * log2(x)) for finite x >= 0, to about 2^-34 relative, in double. The caller handles 0 *
// infinity and 0^0.
template <class DD, class V>
HWY_INLINE V PowInDouble(DD dd, V x, V y) {
  const Exponent<DD> s = SplitExponent(dd, x);
  const V m = hn::BitCast(dd, s.mantissa);
  const V one = hn::Set(dd, 1.0);
  const V t = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const V log2m = hn::Mul(t, Poly(dd, hn::Mul(t, t), 0x1.01149e17a14c1p-2, 0x1.0aec1d442ea08p-2,
                                  0x1.4856f796e1d19p-2, 0x1.a61737b587a0dp-2, 0x1.2776c533d116ep-1,
                                  0x1.ec709dc388952p-1, 0x1.71547652b8308p1));
  V log2x = hn::Add(s.e, log2m);
  log2x = hn::IfThenElse(hn::Eq(x, hn::Zero(dd)), hn::Neg(SetInf(dd)), log2x);
  log2x = hn::IfThenElse(hn::Eq(x, SetInf(dd)), SetInf(dd), log2x);
  // float's range is well inside [2^-200, 2^200], so a single scale factor suffices.
  const V power = Clamp(dd, hn::Mul(y, log2x), hn::Set(dd, -200.0), hn::Set(dd, 200.0));
  const V magic = hn::Set(dd, round_magic<DD> + 1023);
  const V r0 = hn::Add(power, magic);
  const V r = hn::Sub(power, hn::Sub(r0, magic));
  const V p = Poly(dd, r, 0x1.fd088823cd39bp-17, 0x1.445d891ff9f46p-13, 0x1.5d8b5ce4c5e4dp-10,
                   0x1.3b29f216e3e6dp-7, 0x1.c6b089c3f172ap-5, 0x1.ebfbe079a7076p-3,
                   0x1.62e42ff18ad96p-1, 1.0);
  const V scale = hn::BitCast(dd, hn::ShiftLeft<52>(hn::BitCast(Bits<DD>(), r0)));
  return hn::Mul(p, scale);
}

template <class D, class V>
HWY_INLINE V FloatPow(D d, V a, V b) {
  const hn::Half<D> dh;
  const hn::Repartition<double, D> dd;
  const V x = hn::Abs(a);
  const auto lo = PowInDouble(dd, hn::PromoteTo(dd, hn::LowerHalf(dh, x)),
                              hn::PromoteTo(dd, hn::LowerHalf(dh, b)));
  const auto hi = PowInDouble(dd, hn::PromoteTo(dd, hn::UpperHalf(dh, x)),
                              hn::PromoteTo(dd, hn::UpperHalf(dh, b)));
  V r = hn::Combine(d, hn::DemoteTo(dh, hi), hn::DemoteTo(dh, lo));

  const V zero = hn::Zero(d);
  const V one = hn::Set(d, 1.0f);
  r = hn::IfThenElse(hn::Eq(x, one), one, r);  // also if the exponent is infinite
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Gt(a, zero)))) {
    // Negative bases, both zeros, and NaN.
    const V half = hn::Mul(b, hn::Set(d, 0.5f));
    const auto integral = hn::Eq(hn::Round(b), b);
    const auto odd = hn::AndNot(hn::Eq(hn::Round(half), half), integral);
    const auto minus = hn::Lt(hn::CopySign(one, a), zero);
    r = hn::IfThenElse(hn::And(minus, odd), hn::Neg(r), r);
    const auto finite = hn::And(hn::Lt(a, zero), hn::Gt(a, hn::Neg(SetInf(d))));
    r = hn::IfThenElse(hn::AndNot(integral, finite), SetNaN(d), r);
  }
  r = hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), SetNaN(d), r);
  return hn::IfThenElse(hn::Or(hn::Eq(a, one), hn::Eq(b, zero)), one, r);
}
#endif  // HWY_TARGET != HWY_SCALAR

// Computes powers by squaring, modulo 2^width. A negative exponent gives the truncated real result:
// 0, unless the base is 1 or -1.
template <class D, class V>
HWY_INLINE V IntPow(D d, V a, V b) {
  using T = hn::TFromD<D>;
  const V zero = hn::Zero(d);
  const V one = hn::Set(d, T(1));
  const auto negative = hn::Lt(b, zero);
  V e = hn::IfThenZeroElse(negative, b);
  V base = a;
  V r = one;
  while (!hn::AllTrue(d, hn::Eq(e, zero))) {
    r = hn::IfThenElse(hn::TestBit(e, one), hn::Mul(r, base), r);
    base = hn::Mul(base, base);
    e = hn::ShiftRight<1>(e);
  }
  const V minus = hn::Set(d, T(-1));
  const V alternating = hn::IfThenElse(hn::TestBit(b, one), minus, one);
  V small = hn::IfThenElseZero(hn::Eq(a, one), one);
  small = hn::IfThenElse(hn::Eq(a, minus), alternating, small);
  return hn::IfThenElse(negative, small, r);
}

template <class D, class V>
HWY_INLINE V NodePow(D d, V a, V b) {
  using T = hn::TFromD<D>;
  if constexpr (!is_float<D>) {
    return IntPow(d, a, b);
  } else {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (is_f32<D>) return FloatPow(d, a, b);
#endif
    return MapLanes2(d, a, b, [](T x, T y) -> T { return std::pow(x, y); });
  }
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
