// Exponentials: exp, exp2, expm1, sigmoid, sinh, cosh, tanh, for float and double.
//
// exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln(2) / 2, with a minimax polynomial for
// exp(r) (coefficients by Sollya's fpminimax, 2^-28 for float and 2^-57 for double). 2^n is applied
// in two factors so that results reach down into the denormals and up to the largest finite number
// without a branch.
#if defined(MYTORCH_SIMD_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_EXP_INL_H_
#undef MYTORCH_SIMD_EXP_INL_H_
#else
#define MYTORCH_SIMD_EXP_INL_H_
#endif

#include "backends/cpu-openmp/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

template <class V>
struct Scaled {  // the number p * s1 * s2, where s1 and s2 are powers of two
  V p, s1, s2;
};

// exp(r) - 1 for |r| <= ln(2) / 2, with an error relative to exp(r).
template <class D, class V>
HWY_INLINE V ExpRestPoly(D d, V r) {
  V q;
  if constexpr (is_f32<D>) {
    q = Poly(d, r, 0x1.68674ap-10, 0x1.123ecap-7, 0x1.555b8ap-5, 0x1.55548ap-3, 0x1.fffff8p-2);
  } else {
    q = Poly(d, r, 0x1.ae01a681ab8c9p-26, 0x1.28b1186e85ce3p-22, 0x1.71ded2ecad5edp-19,
             0x1.a01995a43c02p-16, 0x1.a01a014f6c4bap-13, 0x1.6c16c1860a538p-10,
             0x1.1111111120d28p-7, 0x1.555555554fe09p-5, 0x1.5555555555516p-3,
             0x1.000000000000cp-1);
  }
  return hn::MulAdd(hn::Mul(r, r), q, r);
}

// exp(r). The leading 1 is added last, where it costs half an ulp of the result instead of half an
// ulp of a part that may be twice as coarse.
template <class D, class V>
HWY_INLINE V ExpPoly(D d, V r) {
  return hn::Add(ExpRestPoly(d, r), hn::Set(d, hn::TFromD<D>(1)));
}

// x - n * ln 2. The high part of ln 2 has so few bits that n * hi is exact without FMA.
template <class D, class V>
HWY_INLINE V ReduceLn2(D d, V x, V n) {
  const V r = hn::NegMulAdd(n, SetFD(d, 0x1.62e4p-1f, 0x1.62e42feep-1), x);
  return hn::NegMulAdd(n, SetFD(d, 0x1.7f7d1cp-20f, 0x1.a39ef35793c76p-33), r);
}

// 2^(n >> 1) and 2^(n - (n >> 1)), from t = round_magic + 2 * bias + n.
template <class D, class V>
HWY_INLINE Scaled<V> SplitScale(D d, V p, V t) {
  const Bits<D> du;
  const auto m = hn::BitCast(du, t);
  const auto half = hn::ShiftRight<1>(m);
  const auto rest = hn::Sub(m, half);
  return {p, hn::BitCast(d, hn::ShiftLeft<mantissa_bits<D>>(half)),
          hn::BitCast(d, hn::ShiftLeft<mantissa_bits<D>>(rest))};
}

// exp(x + tail...) * 2^kShift, for x in the range in which the result is neither below half the
// smallest denormal nor above the overflow threshold, with a little slack. A tail is less than an
// ulp of x. With kLessOne, p is one less.
template <int kShift, bool kLessOne = false, class D, class V, class... Tail>
HWY_INLINE Scaled<V> ExpScaled(D d, V x, Tail... tail) {
  using T = hn::TFromD<D>;
  constexpr T magic = round_magic<D> + (is_f32<D> ? 254 : 2046);
  const V t = hn::MulAdd(x, SetFD(d, 0x1.715476p0f, 0x1.71547652b82fep0), hn::Set(d, magic));
  V r = ReduceLn2(d, x, hn::Sub(t, hn::Set(d, magic)));
  ((r = hn::Add(r, tail)), ...);
  const V shifted = kShift == 0 ? t : hn::Add(t, hn::Set(d, T{kShift}));
  return SplitScale(d, kLessOne ? ExpRestPoly(d, r) : ExpPoly(d, r), shifted);
}

template <class V>
HWY_INLINE V Unscale(const Scaled<V>& s) {
  return hn::Mul(hn::Mul(s.p, s.s1), s.s2);
}

// 2^r * 2^n for float, |r| <= 1/2, where t = exp2_magic + n and |n| < 120. For long chains that end
// in an exponential, hence Estrin's scheme.
template <class D>
inline constexpr hn::TFromD<D> exp2_magic = round_magic<D> + 127;

template <class D, class V>
HWY_INLINE V Exp2Reduced(D d, V r, V t) {
  const V z = hn::Mul(r, r);
  const V c12 = hn::MulAdd(hn::Set(d, 0x1.ebfbd8p-3f), r, hn::Set(d, 0x1.62e43p-1f));
  const V c34 = hn::MulAdd(hn::Set(d, 0x1.3b309p-7f), r, hn::Set(d, 0x1.c6af6cp-5f));
  const V c56 = hn::MulAdd(hn::Set(d, 0x1.3fbecp-13f), r, hn::Set(d, 0x1.5f12bap-10f));
  const V q = hn::MulAdd(hn::MulAdd(c56, z, c34), z, c12);
  const V p = hn::MulAdd(q, r, hn::Set(d, 1.0f));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(Bits<D>(), t))));
}

template <class D, class V>
HWY_INLINE V NodeExp(D d, V a) {
  return Unscale(ExpScaled<0>(d, Clamp(d, a, SetFD(d, -104.0f, -746.0), SetFD(d, 89.0f, 710.0))));
}

template <class D, class V>
HWY_INLINE V NodeExp2(D d, V a) {
  using T = hn::TFromD<D>;
  constexpr T magic = round_magic<D> + (is_f32<D> ? 254 : 2046);
  const V x = Clamp(d, a, SetFD(d, -151.0f, -1076.0), SetFD(d, 129.0f, 1025.0));
  const V t = hn::Add(x, hn::Set(d, magic));
  const V n = hn::Sub(t, hn::Set(d, magic));
  const V r = hn::Mul(hn::Sub(x, n), SetFD(d, 0x1.62e43p-1f, 0x1.62e42fefa39efp-1));
  return Unscale(SplitScale(d, ExpPoly(d, r), t));
}

// exp(x) - 1 = 2^n * (exp(r) - 1) + (2^n - 1), computed at half scale so that 2^(n-1) never
// overflows.
template <class D, class V>
HWY_INLINE V NodeExpm1(D d, V a) {
  using T = hn::TFromD<D>;
  constexpr T magic = round_magic<D> + (is_f32<D> ? 126 : 1022);
  const V x = Clamp(d, a, SetFD(d, -20.0f, -40.0), SetFD(d, 89.0f, 710.0));
  const V t = hn::MulAdd(x, SetFD(d, 0x1.715476p0f, 0x1.71547652b82fep0), hn::Set(d, magic));
  const V n = hn::Sub(t, hn::Set(d, magic));
  const V r = ReduceLn2(d, x, n);
  const V s = hn::BitCast(d, hn::ShiftLeft<mantissa_bits<D>>(hn::BitCast(Bits<D>(), t)));
  V q;
  if constexpr (is_f32<D>) {
    q = Poly(d, r, 0x1.9e18f8p-13, 0x1.6d465ep-10, 0x1.111302p-7, 0x1.5554eep-5, 0x1.555554p-3,
             0.5);
  } else {
    q = Poly(d, r, 0x1.1f1283a8302fcp-29, 0x1.af5fae9b8b91cp-26, 0x1.27e51864104fp-22,
             0x1.71ddf7d25b94p-19, 0x1.a01a018b9c7f8p-16, 0x1.a01a01b0156c8p-13,
             0x1.6c16c16c1b29ep-10, 0x1.111111110f63bp-7, 0x1.555555555554cp-5,
             0x1.5555555555559p-3, 0.5);
  }
  const V p = hn::MulAdd(hn::Mul(r, r), q, r);
  const V h = hn::MulAdd(s, p, hn::Sub(s, hn::Set(d, T(0.5))));
  // Half scale would lose the last bit of denormals and the sign of -0.
  const auto tiny = hn::Lt(hn::Abs(a), SetFD(d, 0x1p-25f, 0x1p-54));
  return hn::IfThenElse(tiny, a, hn::Add(h, h));
}

// 1 / (1 + exp(-x)), with the exponential always of a negative number: it cannot overflow, so the
// left tail stays accurate down to the denormals.
template <class D, class V>
HWY_INLINE V NodeSigmoid(D d, V a) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1));
  const V minus_abs = hn::Or(a, hn::SignBit(d));
  const V e = Unscale(ExpScaled<0>(d, ClampMin(d, minus_abs, SetFD(d, -104.0f, -746.0))));
  return hn::Div(hn::IfThenElse(hn::Lt(a, hn::Zero(d)), e, one), hn::Add(one, e));
}

// cosh(x) = E + 1 / (4 E) with E = exp(|x|) / 2.
template <class D, class V>
HWY_INLINE V NodeCosh(D d, V a) {
  using T = hn::TFromD<D>;
  const V e = Unscale(ExpScaled<-1>(d, ClampMax(d, hn::Abs(a), SetFD(d, 90.0f, 711.0))));
  return hn::Add(e, hn::Div(hn::Set(d, T(0.25)), e));
}

// The same with a minus sign, which cancels for small x; there, a polynomial replaces it.
template <class D, class V>
HWY_INLINE V NodeSinh(D d, V a) {
  using T = hn::TFromD<D>;
  const V x = ClampMax(d, hn::Abs(a), SetFD(d, 90.0f, 711.0));
  const V e = Unscale(ExpScaled<-1>(d, x));
  const V large = hn::CopySign(hn::Sub(e, hn::Div(hn::Set(d, T(0.25)), e)), a);
  const V z = hn::Mul(x, x);
  V q;
  if constexpr (is_f32<D>) {
    q = Poly(d, z, 0x1.76771ep-19, 0x1.a01c22p-13, 0x1.1110eap-7, 0x1.555556p-3);
  } else {
    q = Poly(d, z, 0x1.b52ebd853a45cp-41, 0x1.6118df72517e3p-33, 0x1.ae646b4d5dc17p-26,
             0x1.71de3a40565edp-19, 0x1.a01a01a0318d8p-13, 0x1.111111111104p-7,
             0x1.5555555555556p-3);
  }
  const V small = hn::MulAdd(hn::Mul(a, z), q, a);
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, T(1))), small, large);
}

// Away from zero 1 - 2 / (exp(2 |x|) + 1), near it a polynomial: a rational function over the whole
// range is a third faster but, from rounding alone, wrong by up to 5 ulp near 1.
template <class D, class V>
HWY_INLINE V NodeTanh(D d, V a) {
  const V x = ClampMax(d, hn::Abs(a), SetFD(d, 10.0f, 20.0));
  if constexpr (is_f32<D>) {
    const V one = hn::Set(d, 1.0f);
    // exp(2 x) = 2^(x * 2 / ln 2), reduced before the product is rounded
    const V log2e2 = hn::Set(d, 0x1.715476p1f);
    const V magic = hn::Set(d, exp2_magic<D>);
    const V t = hn::MulAdd(x, log2e2, magic);
    const V e = Exp2Reduced(d, hn::MulSub(x, log2e2, hn::Sub(t, magic)), t);
    const V outer = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
    const V z = hn::Mul(x, x);
    const V q =
        Poly(d, z, -0x1.8182f6p-8, 0x1.5486a2p-6, -0x1.b8909ap-5, 0x1.110966p-3, -0x1.55553cp-2);
    const V inner = hn::MulAdd(hn::Mul(x, z), q, x);
    const auto near = hn::Lt(x, hn::Set(d, 0.6f));
    return hn::CopySign(hn::IfThenElse(near, inner, outer), a);
  } else {
    const V e = NodeExpm1(d, hn::Add(x, x));
    return hn::CopySign(hn::Div(e, hn::Add(e, hn::Set(d, 2.0))), a);
  }
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
