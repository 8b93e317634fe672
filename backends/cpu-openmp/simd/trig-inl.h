// sin, cos, tan and their inverses.
//
// Moderate arguments are reduced by multiples of pi / 2 in three parts with FMA, which keeps full
// relative accuracy near the zeros. Large arguments, and targets without FMA, use libm: its
// Payne-Hanek reduction is exact for any argument. double's inverse functions also use libm.
#if defined(MYTORCH_SIMD_TRIG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_TRIG_INL_H_
#undef MYTORCH_SIMD_TRIG_INL_H_
#else
#define MYTORCH_SIMD_TRIG_INL_H_
#endif

#include "backends/cpu-openmp/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

template <class D, class V = hn::VFromD<D>>
struct Quadrant {
  V r;                    // the argument less a multiple of pi / 2, in [-pi/4, pi/4]
  hn::VFromD<Bits<D>> n;  // that multiple, in the low bits
};

template <class D, class V>
HWY_INLINE Quadrant<D> ReduceHalfPi(D d, V a) {
  const V magic = hn::Set(d, round_magic<D>);
  const V t = hn::MulAdd(a, SetFD(d, 0x1.45f306p-1f, 0x1.45f306dc9c883p-1), magic);
  const V n = hn::Sub(t, magic);
  V r = hn::NegMulAdd(n, SetFD(d, 0x1.921fb6p0f, 0x1.921fb54442d18p0), a);
  r = hn::NegMulAdd(n, SetFD(d, -0x1.777a5cp-25f, 0x1.1a62633145c07p-54), r);
  r = hn::NegMulAdd(n, SetFD(d, -0x1.ee59dap-50f, -0x1.f1976b7ed8fbcp-110), r);
  return {r, hn::BitCast(Bits<D>(), t)};
}

template <class D, class V>
HWY_INLINE V SinPoly(D d, V r, V z) {
  if constexpr (is_f32<D>) {
    return hn::MulAdd(hn::Mul(r, z),
                      Poly(d, z, 0x1.77c666p-19, -0x1.a0482ep-13, 0x1.111164p-7, -0x1.555556p-3),
                      r);
  } else {
    return hn::MulAdd(hn::Mul(r, z),
                      Poly(d, z, 1.58969099521155010221e-10, -2.50507602534068634195e-08,
                           2.75573137070700676789e-06, -1.98412698298579493134e-04,
                           8.33333333332248946124e-03, -1.66666666666666324348e-01),
                      r);
  }
}

template <class D, class V>
HWY_INLINE V CosPoly(D d, V z) {
  const V half = hn::MulAdd(z, hn::Set(d, hn::TFromD<D>(-0.5)), hn::Set(d, hn::TFromD<D>(1)));
  if constexpr (is_f32<D>) {
    return hn::MulAdd(hn::Mul(z, z), Poly(d, z, 0x1.99e42ap-16, -0x1.6c0c2p-10, 0x1.55554ap-5),
                      half);
  } else {
    return hn::MulAdd(hn::Mul(z, z),
                      Poly(d, z, -1.13596475577881948265e-11, 2.08757232129817482790e-09,
                           -2.75573143513906633035e-07, 2.48015872894767294178e-05,
                           -1.38888888888741095749e-03, 4.16666666666666019037e-02),
                      half);
  }
}

// sin(a + kQuarter * pi / 2).
template <int kQuarter, class D, class V>
HWY_INLINE V SinImpl(D d, V a) {
  const Bits<D> du;
  using U = hn::TFromD<Bits<D>>;
  const Quadrant<D> q = ReduceHalfPi(d, a);
  const V z = hn::Mul(q.r, q.r);
  const auto n = kQuarter == 0 ? q.n : hn::Add(q.n, hn::Set(du, U{kQuarter}));
  const auto odd = hn::TestBit(n, hn::Set(du, U{1}));
  const V v = hn::IfThenElse(hn::RebindMask(d, odd), CosPoly(d, z), SinPoly(d, q.r, z));
  const auto sign = hn::ShiftLeft<sizeof(U) * 8 - 2>(hn::And(n, hn::Set(du, U{2})));
  return hn::Xor(v, hn::BitCast(d, sign));
}

// Returns by_vector() in the lanes whose angle ReduceHalfPi supports, and libm's result in the
// others, NaN among them. So no lane depends on its neighbors: results have the same bits wherever
// an element lies.
template <class D, class V, class ByVector>
HWY_INLINE V OfAngles(D d, V a, ByVector by_vector, hn::TFromD<D> (*libm)(hn::TFromD<D>)) {
  if constexpr (HWY_NATIVE_FMA) {
    const auto moderate = hn::Lt(hn::Abs(a), SetFD(d, 1e4f, 1e6));
    const V r = by_vector();
    if (HWY_LIKELY(hn::AllTrue(d, moderate))) return r;
    return hn::IfThenElse(moderate, r, MapLanes(d, a, libm));
  } else {
    return MapLanes(d, a, libm);
  }
}

template <class D, class V>
HWY_INLINE V NodeSin(D d, V a) {
  using T = hn::TFromD<D>;
  const auto by_vector = [&]() HWY_ATTR {
    return hn::IfThenElse(hn::Eq(a, hn::Zero(d)), a, SinImpl<0>(d, a));  // keeps -0
  };
  return OfAngles(d, a, by_vector, [](T x) -> T { return std::sin(x); });
}

template <class D, class V>
HWY_INLINE V NodeCos(D d, V a) {
  using T = hn::TFromD<D>;
  const auto by_vector = [&]() HWY_ATTR { return SinImpl<1>(d, a); };
  return OfAngles(d, a, by_vector, [](T x) -> T { return std::cos(x); });
}

template <class D, class V>
HWY_INLINE V TanImpl(D d, V a) {
  using U = hn::TFromD<Bits<D>>;
  const Bits<D> du;
  const Quadrant<D> q = ReduceHalfPi(d, a);
  const V z = hn::Mul(q.r, q.r);
  const V s = SinPoly(d, q.r, z);
  const V c = CosPoly(d, z);
  const auto low = hn::And(q.n, hn::Set(du, U{1}));
  const auto odd = hn::RebindMask(d, hn::Ne(low, hn::Zero(du)));
  const V quotient = hn::Div(hn::IfThenElse(odd, c, s), hn::IfThenElse(odd, s, c));
  const V sign = hn::BitCast(d, hn::ShiftLeft<sizeof(U) * 8 - 1>(low));
  return hn::IfThenElse(hn::Eq(a, hn::Zero(d)), a, hn::Xor(quotient, sign));  // keeps -0
}

template <class D, class V>
HWY_INLINE V NodeTan(D d, V a) {
  using T = hn::TFromD<D>;
  const auto by_vector = [&]() HWY_ATTR { return TanImpl(d, a); };
  return OfAngles(d, a, by_vector, [](T x) -> T { return std::tan(x); });
}

// atan(t) for t in [0, 1], float.
template <class D, class V>
HWY_INLINE V AtanPoly(D d, V t) {
  const V z = hn::Mul(t, t);
  const V q = Poly(d, z, -0x1.d4ee9ap-10, 0x1.64f01cp-7, -0x1.fe2526p-6, 0x1.da723p-5,
                   -0x1.581a94p-4, 0x1.c090fap-4, -0x1.2420d6p-3, 0x1.9991e8p-3, -0x1.55553ep-2);
  return hn::MulAdd(hn::Mul(t, z), q, t);
}

// pi / 2 - x, with pi / 2 to twice the precision.
template <class D, class V>
HWY_INLINE V HalfPiMinus(D d, V x) {
  return hn::Sub(hn::Sub(hn::Set(d, 0x1.921fb6p0f), x), hn::Set(d, 0x1.777a5cp-25f));
}

template <class D, class V>
HWY_INLINE V NodeAtan(D d, V a) {
  if constexpr (is_f32<D>) {
    const V one = hn::Set(d, 1.0f);
    const V x = hn::Abs(a);
    const auto inverted = hn::Gt(x, one);
    const V p = AtanPoly(d, hn::IfThenElse(inverted, hn::Div(one, x), x));
    return hn::CopySign(hn::IfThenElse(inverted, HalfPiMinus(d, p), p), a);
  } else {
    return MapLanes(d, a, [](double x) { return std::atan(x); });
  }
}

// atan2(a, b): the angle of the point (b, a).
template <class D, class V>
HWY_INLINE V NodeAtan2(D d, V a, V b) {
  if constexpr (is_f32<D>) {
    const V zero = hn::Zero(d);
    const V y = hn::Abs(a);
    const V x = hn::Abs(b);
    const auto steep = hn::Gt(y, x);
    const V lo = hn::IfThenElse(steep, x, y);
    const V hi = hn::IfThenElse(steep, y, x);
    // 0 / 0 counts as 0 and inf / inf as 1.
    V t = hn::IfThenElse(hn::Eq(lo, hi), hn::Set(d, 1.0f), hn::Div(lo, hi));
    t = hn::IfThenElse(hn::Eq(hi, zero), zero, t);
    V p = AtanPoly(d, t);
    p = hn::IfThenElse(steep, HalfPiMinus(d, p), p);
    const V mirrored = hn::Sub(hn::Sub(hn::Set(d, 0x1.921fb6p1f), p), hn::Set(d, 0x1.777a5cp-24f));
    const auto left = hn::Lt(hn::CopySign(hn::Set(d, 1.0f), b), zero);
    const V r = hn::CopySign(hn::IfThenElse(left, mirrored, p), a);
    return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), SetNaN(d), r);
  } else {
    return MapLanes2(d, a, b, [](double y, double x) { return std::atan2(y, x); });
  }
}

// asin(s) for s in [0, 1/2], float, from s and its square.
template <class D, class V>
HWY_INLINE V AsinPoly(D d, V s, V z) {
  return hn::MulAdd(
      hn::Mul(s, z),
      Poly(d, z, 0x1.59dbe4p-5, 0x1.8b951ep-6, 0x1.748f98p-5, 0x1.33010ep-4, 0x1.5555ccp-3), s);
}

// Above 1/2: asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)).
template <class D, class V>
HWY_INLINE V NodeAsin(D d, V a) {
  if constexpr (is_f32<D>) {
    const V half = hn::Set(d, 0.5f);
    const V x = hn::Abs(a);
    const auto outer = hn::Gt(x, half);
    const V z = hn::IfThenElse(outer, hn::NegMulAdd(half, x, half), hn::Mul(x, x));
    const V p = AsinPoly(d, hn::IfThenElse(outer, hn::Sqrt(z), x), z);
    return hn::CopySign(hn::IfThenElse(outer, HalfPiMinus(d, hn::Add(p, p)), p), a);
  } else {
    return MapLanes(d, a, [](double x) { return std::asin(x); });
  }
}

template <class D, class V>
HWY_INLINE V NodeAcos(D d, V a) {
  if constexpr (is_f32<D>) {
    const V half = hn::Set(d, 0.5f);
    const V x = hn::Abs(a);
    const auto outer = hn::Gt(x, half);
    const V z = hn::IfThenElse(outer, hn::NegMulAdd(half, x, half), hn::Mul(x, x));
    const V p = AsinPoly(d, hn::IfThenElse(outer, hn::Sqrt(z), x), z);
    const V twice = hn::Add(p, p);
    const V mirrored =
        hn::Sub(hn::Sub(hn::Set(d, 0x1.921fb6p1f), twice), hn::Set(d, 0x1.777a5cp-24f));
    const V outside = hn::IfThenElse(hn::Lt(a, hn::Zero(d)), mirrored, twice);
    return hn::IfThenElse(outer, outside, HalfPiMinus(d, hn::CopySign(p, a)));
  } else {
    return MapLanes(d, a, [](double x) { return std::acos(x); });
  }
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
