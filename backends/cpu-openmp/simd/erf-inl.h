// erf and erfc.
//
// Near zero both are a polynomial. Away from it float's erf is 1 - p(x)^-8, the
// cheapest form found that stays within 3 ulp and never leaves [-1, 1]. The rest is
//     erfc(x) = exp(-x^2) * f(x),
// where f is a rational function in float, with positive coefficients so that no digits are lost
// (minimax, 2^-26), and in double
//     f(x) = g(t) / (1 + 2 x), t = (x - k) / (x + k),
// where g is smooth enough for one polynomial over the whole tail (the form is Shepherd and
// Laframboise's, coefficients by Sollya's fpminimax).
#if defined(MYTORCH_SIMD_ERF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_ERF_INL_H_
#undef MYTORCH_SIMD_ERF_INL_H_
#else
#define MYTORCH_SIMD_ERF_INL_H_
#endif

#include "backends/cpu-openmp/simd/exp-inl.h"
#include "backends/cpu-openmp/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

// exp(-(square + error)) * f(x), where f(x) is the quotient p / q.
template <class D, class V>
HWY_INLINE V ScaledQuotient(D d, V square, V error, V p, V q) {
  const Scaled<V> e = ExpScaled<0, true>(d, hn::Neg(square), hn::Neg(error));
  // One less rounding than exp(...) * p. The last scale comes last, so that a denormal result is
  // rounded once.
  const V product = hn::Mul(hn::MulAdd(p, e.p, p), e.s1);
  return hn::Mul(hn::Div(product, q), e.s2);
}

// g of double, for x in [0.7, 27.3].
template <class D, class V>
HWY_INLINE V ErfcSmoothPart(D d, V x) {
  const V k = hn::Set(d, 4.0);
  const V t = hn::Div(hn::Sub(x, k), hn::Add(x, k));
  return Poly(
      d, t, -0x1.8a124251433d5p-27, -0x1.6dadc75ceeb6ap-27, 0x1.cfcb1c53f1929p-24,
      0x1.0dd572e10bd5p-24, -0x1.bace6fe25f3fp-21, 0x1.46cc7d0a65216p-22, 0x1.7f2dae0933c73p-18,
      -0x1.78be2e5509dddp-17, -0x1.995a540485258p-16, 0x1.3be17da7a7cb9p-13, -0x1.a1df1a287aaefp-13,
      -0x1.8d4aabf6283bep-11, 0x1.49c67275b4c46p-8, -0x1.09623870575d8p-6, 0x1.3079edf6b9aa7p-5,
      -0x1.0fb06dfebce72p-4, 0x1.7fee004e10c6p-4, -0x1.9ddb23c3e3799p-4, 0x1.16ecefcfa543ep-4,
      0x1.f7f5df66fc7dep-7, -0x1.1df1ad154a28fp-3, 0x1.3ba5916e9fd7fp0);
}

// erfc(|a|) (double: for |a| >= 0.7), needs FMA.
template <class D, class V>
HWY_INLINE V ErfcOfSize(D d, V a) {
  const V x = ClampMax(d, hn::Abs(a), SetFD(d, 10.1f, 27.3));
  const V square = hn::Mul(x, x);
  const V error = hn::MulSub(x, x, square);  // x^2 = square + error, exactly
  if constexpr (is_f32<D>) {
    const V p = Poly(d, x, 0x1.0d64c2p-5, 0x1.d64d5ep-3, 0x1.770882p-1, 0x1.3d3faap+0, 1.0);
    const V q =
        Poly(d, x, 0x1.dd7b6ap-5, 0x1.a0d234p-2, 0x1.53b758p+0, 0x1.33b862p+1, 0x1.2f0e94p+1, 1.0);
    return ScaledQuotient(d, square, error, p, q);
  } else {
    const V q = hn::MulAdd(hn::Set(d, 2.0), x, hn::Set(d, 1.0));
    return ScaledQuotient(d, square, error, ErfcSmoothPart(d, x), q);
  }
}

// erf(x) for |x| < 0.98 (float) or |x| <= 3/4 (double), from x and its square.
template <class D, class V>
HWY_INLINE V ErfPoly(D d, V x, V z) {
  if constexpr (is_f32<D>) {
    // Relative to x instead of starting from 2 / sqrt(pi), which float does not represent well.
    return hn::MulAdd(x,
                      Poly(d, z, 0x1.4c5cb4p-14, -0x1.a5197ap-11, 0x1.542fecp-8, -0x1.b7fec4p-6,
                           0x1.ce2d52p-4, -0x1.81274p-2, 0x1.06eba8p-3),
                      x);
  } else {
    return hn::Mul(x,
                   Poly(d, z, 0x1.123449dbb231dp-31, 0x1.4d9b0ccbf9b08p-27, -0x1.507c72b64cddcp-23,
                        0x1.b86b3c7a55225p-20, -0x1.f4ba96647a5efp-17, 0x1.f9a22d809d678p-14,
                        -0x1.c02dad47de02ep-11, 0x1.565bccf0986bp-8, -0x1.b82ce311e6bf4p-6,
                        0x1.ce2f21a040d49p-4, -0x1.812746b0379bcp-2, 0x1.20dd750429b6dp0));
  }
}

template <class D, class V>
HWY_INLINE V NodeErf(D d, V a) {
  using T = hn::TFromD<D>;
  if constexpr (is_f32<D>) {
    const V one = hn::Set(d, 1.0f);
    // Like Abramowitz and Stegun's 7.1.28, 1 - 1 / p(x)^8; at the clamp the quotient is below half
    // an ulp of 1.
    const V x = ClampMax(d, hn::Abs(a), hn::Set(d, 4.0f));
    const V z = hn::Mul(x, x);
    const V p01 = hn::MulAdd(hn::Set(d, 0x1.4367dap-3f), x, hn::Set(d, 0x1.fe5902p-1f));
    const V p23 = hn::MulAdd(hn::Set(d, 0x1.236ae2p-4f), x, hn::Set(d, 0x1.a926fp-5f));
    const V p45 = hn::MulAdd(hn::Set(d, 0x1.19634ep-6f), x, hn::Set(d, -0x1.018cep-5f));
    const V p67 = hn::MulAdd(hn::Set(d, 0x1.1818e4p-11f), x, hn::Set(d, -0x1.fdac2ep-9f));
    V p = hn::MulAdd(hn::MulAdd(hn::MulAdd(p67, z, p45), z, p23), z, p01);
    p = hn::Mul(p, p);
    p = hn::Mul(p, p);
    p = hn::Mul(p, p);
    const V outer = hn::CopySign(hn::Sub(one, hn::Div(one, p)), a);
    const auto near = hn::Lt(x, hn::Set(d, 0.98f));
    return hn::IfThenElse(near, ErfPoly(d, a, z), outer);
  } else if constexpr (HWY_NATIVE_FMA) {
    const V x = hn::Abs(a);
    const V tail = hn::CopySign(hn::Sub(hn::Set(d, T(1)), ErfcOfSize(d, a)), a);
    return hn::IfThenElse(hn::Lt(x, hn::Set(d, T(0.75))), ErfPoly(d, a, hn::Mul(a, a)), tail);
  } else {
    return MapLanes(d, a, [](T v) -> T { return std::erf(v); });
  }
}

template <class D, class V>
HWY_INLINE V NodeErfc(D d, V a) {
  using T = hn::TFromD<D>;
  if constexpr (HWY_NATIVE_FMA) {
    const V tail = ErfcOfSize(d, a);
    const V outer = hn::IfThenElse(hn::Lt(a, hn::Zero(d)), hn::Sub(hn::Set(d, T(2)), tail), tail);
    const auto inner = hn::Lt(hn::Abs(a), SetFD(d, 0.5f, 0.75));
    return hn::IfThenElse(inner, hn::Sub(hn::Set(d, T(1)), ErfPoly(d, a, hn::Mul(a, a))), outer);
  } else {
    return MapLanes(d, a, [](T v) -> T { return std::erfc(v); });
  }
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
