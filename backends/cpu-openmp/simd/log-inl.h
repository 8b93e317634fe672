// Logarithms: log, log2, log10, log1p, and the inverse hyperbolic functions, which are based on
// log1p.
//
// x = 2^e * m with m in [2/3, 4/3); log(x) = e * ln 2 + log(1 + f), f = m - 1. float takes log(1 +
// f) as a polynomial in f; double as one in s = f / (2 + f), arranged as in FreeBSD's e_log.c.
#if defined(MYTORCH_SIMD_LOG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_LOG_INL_H_
#undef MYTORCH_SIMD_LOG_INL_H_
#else
#define MYTORCH_SIMD_LOG_INL_H_
#endif

#include "backends/cpu-openmp/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

// log(1 + f) = f + tail, for f in [-1/3, 1/3).
template <class D, class V>
HWY_INLINE V Log1pTail(D d, V f) {
  if constexpr (is_f32<D>) {
    const V q = Poly(d, f, -0x1.063f0ep-3, 0x1.1ef05ap-3, -0x1.f3e856p-4, 0x1.1eb72ap-3,
                     -0x1.5595c2p-3, 0x1.99d27ap-3, -0x1.ffff2p-3, 0x1.5555p-2, -0.5);
    return hn::Mul(hn::Mul(f, f), q);
  } else {
    const V s = hn::Div(f, hn::Add(f, hn::Set(d, 2.0)));
    const V z = hn::Mul(s, s);
    const V r =
        hn::Mul(z, Poly(d, z, 0x1.f7a943fcd8256p-4, 0x1.dced17b1bb588p-4, 0x1.1124f3da45207p-3,
                        0x1.3b137e5fffa01p-3, 0x1.745d16066cd26p-3, 0x1.c71c71d24e89cp-3,
                        0x1.2492492481232p-2, 0x1.9999999999b09p-2, 0x1.5555555555555p-1));
    const V half = hn::Mul(hn::Set(d, 0.5), hn::Mul(f, f));
    return hn::MulSub(s, hn::Add(half, r), half);
  }
}

template <class D>
struct Exponent {
  hn::VFromD<D> e;               // as a number
  hn::VFromD<Bits<D>> biased;    // e + bias, in the low bits
  hn::VFromD<Bits<D>> mantissa;  // the bits of m
};

// Splits a positive normal number; the result is arbitrary for other numbers.
template <class D, class V>
HWY_INLINE Exponent<D> SplitExponent(D d, V x) {
  using U = hn::TFromD<Bits<D>>;
  const Bits<D> du;
  constexpr int kBits = mantissa_bits<D>;
  constexpr U two_thirds = static_cast<U>(is_f32<D> ? 0x3f2aaaabull : 0x3fe5555555555555ull);
  constexpr U one = static_cast<U>(is_f32<D> ? 0x3f800000ull : 0x3ff0000000000000ull);
  // Counting from 2/3 instead of 1 moves the carry of the mantissa into the exponent.
  const auto u = hn::Add(hn::BitCast(du, x), hn::Set(du, one - two_thirds));
  const auto biased = hn::ShiftRight<kBits>(u);
  // A small integer in the low bits of 2^kBits is that number plus 2^kBits.
  constexpr U anchor = static_cast<U>(is_f32<D> ? 0x4b000000ull : 0x4330000000000000ull);
  constexpr auto offset =
      static_cast<hn::TFromD<D>>(is_f32<D> ? 8388608.0 + 127 : 4503599627370496.0 + 1023);
  const V e = hn::Sub(hn::BitCast(d, hn::Or(biased, hn::Set(du, anchor))), hn::Set(d, offset));
  const auto m = hn::Add(hn::And(u, hn::Set(du, (U{1} << kBits) - 1)), hn::Set(du, two_thirds));
  return {e, biased, m};
}

enum class LogBase { kE, k2, k10 };

// e * log(2) + f + tail, in the base's units.
template <LogBase kBase, class D, class V>
HWY_INLINE V JoinLog(D d, V e, V f, V tail) {
  if constexpr (kBase == LogBase::kE) {
    const V low = hn::MulAdd(e, SetFD(d, 0x1.7f7d1cp-20f, 0x1.a39ef35793c76p-33), tail);
    return hn::MulAdd(e, SetFD(d, 0x1.62e4p-1f, 0x1.62e42feep-1), hn::Add(low, f));
  } else if constexpr (kBase == LogBase::k2) {
    return hn::MulAdd(hn::Add(f, tail), SetFD(d, 0x1.715476p0f, 0x1.71547652b82fep0), e);
  } else {
    const V m = hn::Add(f, tail);
    V low = hn::Mul(e, SetFD(d, 0x1.3509f8p-18f, 0x1.9fef311f12b36p-42));
    low = hn::MulAdd(m, SetFD(d, -0x1.5b235ep-27f, 0x1.95355baaafad3p-57), low);
    const V part = hn::MulAdd(m, SetFD(d, 0x1.bcb7b2p-2f, 0x1.bcb7b1526e50ep-2), low);
    return hn::MulAdd(e, SetFD(d, 0x1.344p-2f, 0x1.34413509f6p-2), part);
  }
}

template <LogBase kBase, class D, class V>
HWY_INLINE V LogImpl(D d, V a) {
  using T = hn::TFromD<D>;
  const V min = hn::Set(d, std::numeric_limits<T>::min());
  const V inf = SetInf(d);
  const bool ordinary = hn::AllTrue(d, hn::And(hn::Ge(a, min), hn::Lt(a, inf)));
  const V one = hn::Set(d, T(1));
  V x = a;
  V shift = hn::Zero(d);
  if (HWY_UNLIKELY(!ordinary)) {
    const auto tiny = hn::Lt(a, min);
    x = hn::IfThenElse(tiny, hn::Mul(a, SetFD(d, 0x1p24f, 0x1p53)), a);
    shift = hn::IfThenElseZero(tiny, SetFD(d, 24.0f, 53.0));
  }
  const Exponent<D> s = SplitExponent(d, x);
  const V f = hn::Sub(hn::BitCast(d, s.mantissa), one);
  V r = JoinLog<kBase>(d, hn::Sub(s.e, shift), f, Log1pTail(d, f));
  if (HWY_UNLIKELY(!ordinary)) {
    r = hn::IfThenElse(hn::Eq(a, inf), inf, r);
    r = hn::IfThenElse(hn::Eq(a, hn::Zero(d)), hn::Neg(inf), r);
    r = hn::IfThenElse(hn::Ge(a, hn::Zero(d)), r, SetNaN(d));
  }
  return r;
}

template <class D, class V>
HWY_INLINE V NodeLog(D d, V a) {
  return LogImpl<LogBase::kE>(d, a);
}

template <class D, class V>
HWY_INLINE V NodeLog2(D d, V a) {
  return LogImpl<LogBase::k2>(d, a);
}

template <class D, class V>
HWY_INLINE V NodeLog10(D d, V a) {
  return LogImpl<LogBase::k10>(d, a);
}

// With 1 + x = 2^k * m (rounded only to find k): f = x * 2^-k + (2^-k - 1), which is nearly exact.
template <class D, class V>
HWY_INLINE V NodeLog1p(D d, V a) {
  using T = hn::TFromD<D>;
  using U = hn::TFromD<Bits<D>>;
  const Bits<D> du;
  constexpr int kBits = mantissa_bits<D>;
  constexpr U bias = is_f32<D> ? 127 : 1023;
  const V one = hn::Set(d, T(1));
  const V inf = SetInf(d);
  const Exponent<D> s = SplitExponent(d, hn::Add(one, a));
  const auto k = hn::Sub(s.biased, hn::Set(du, bias));
  const V scaled = hn::BitCast(d, hn::Sub(hn::BitCast(du, a), hn::ShiftLeft<kBits>(k)));
  // 2^(1-k), which unlike 2^-k has an encoding for every k (zero for the largest).
  const V scale =
      hn::BitCast(d, hn::ShiftLeft<kBits>(hn::Sub(hn::Set(du, 2 * bias + 1), s.biased)));
  const V f = hn::Add(scaled, hn::MulSub(scale, hn::Set(d, T(0.5)), one));
  V r = JoinLog<LogBase::kE>(d, s.e, f, Log1pTail(d, f));
  r = hn::IfThenElse(hn::Eq(a, hn::Zero(d)), a, r);  // keeps -0
  const auto ordinary = hn::And(hn::Gt(a, hn::Neg(one)), hn::Lt(a, inf));
  if (HWY_UNLIKELY(!hn::AllTrue(d, ordinary))) {
    r = hn::IfThenElse(hn::Eq(a, inf), inf, r);
    r = hn::IfThenElse(hn::Eq(a, hn::Neg(one)), hn::Neg(inf), r);
    r = hn::IfThenElse(hn::Ge(a, hn::Neg(one)), r, SetNaN(d));
  }
  return r;
}

// log(2 x) if x is so large that its square would overflow, or that the 1 beside it does not
// matter.
template <class D, class V, class M>
HWY_INLINE V AddLn2If(D d, M mask, V x) {
  return hn::Add(x, hn::IfThenElseZero(mask, SetFD(d, 0x1.62e43p-1f, 0x1.62e42fefa39efp-1)));
}

template <class D, class V>
HWY_INLINE V NodeAsinh(D d, V a) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1));
  const V x = hn::Abs(a);
  const auto large = hn::Gt(x, SetFD(d, 0x1p28f, 0x1p56));
  const V z = hn::Mul(x, x);
  const V sum = hn::Add(x, hn::Div(z, hn::Add(one, hn::Sqrt(hn::Add(z, one)))));
  const V r = NodeLog1p(d, hn::IfThenElse(large, x, sum));
  return hn::CopySign(AddLn2If(d, large, r), a);
}

template <class D, class V>
HWY_INLINE V NodeAcosh(D d, V a) {
  using T = hn::TFromD<D>;
  const auto large = hn::Gt(a, SetFD(d, 0x1p28f, 0x1p56));
  const V t = hn::Sub(a, hn::Set(d, T(1)));
  const V root = hn::Sqrt(hn::Mul(t, hn::Add(t, hn::Set(d, T(2)))));
  // Far below 1 the product under the root is positive again.
  const V sum = hn::IfThenElse(hn::Lt(t, hn::Zero(d)), SetNaN(d), hn::Add(t, root));
  return AddLn2If(d, large, NodeLog1p(d, hn::IfThenElse(large, a, sum)));
}

template <class D, class V>
HWY_INLINE V NodeAtanh(D d, V a) {
  using T = hn::TFromD<D>;
  const V x = hn::Abs(a);
  const V y = hn::Div(hn::Add(x, x), hn::Sub(hn::Set(d, T(1)), x));
  return hn::CopySign(hn::Mul(hn::Set(d, T(0.5)), NodeLog1p(d, y)), a);
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
