// Arithmetic, division, rounding and selection for float, double, int32_t and int64_t vectors.
// Integer arithmetic wraps. Masks represent bool.
#if defined(MYTORCH_SIMD_ARITH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_ARITH_INL_H_
#undef MYTORCH_SIMD_ARITH_INL_H_
#else
#define MYTORCH_SIMD_ARITH_INL_H_
#endif

#include "backends/cpu-openmp/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

template <class D, class V>
HWY_INLINE V NodeAdd(D, V a, V b) {
  return hn::Add(a, b);
}

template <class D, class V>
HWY_INLINE V NodeSub(D, V a, V b) {
  return hn::Sub(a, b);
}

template <class D, class V>
HWY_INLINE V NodeMul(D, V a, V b) {
  return hn::Mul(a, b);
}

template <class D, class V>
HWY_INLINE V NodeNeg(D, V a) {
  return hn::Neg(a);
}

// Of real numbers.
template <class D, class V>
HWY_INLINE V NodeConjPhysical(D, V a) {
  return a;
}

template <class D, class V>
HWY_INLINE V NodeAbs(D, V a) {
  return hn::Abs(a);
}

// 1, 0 or -1; NaN gives 0, as in ATen.
template <class D, class V>
HWY_INLINE V NodeSign(D d, V a) {
  const V zero = hn::Zero(d);
  const V one = hn::Set(d, hn::TFromD<D>(1));
  return hn::Sub(hn::IfThenElseZero(hn::Gt(a, zero), one),
                 hn::IfThenElseZero(hn::Lt(a, zero), one));
}

// x86's minps and maxps return the second operand if either is NaN, so only a NaN in the first
// needs care. Other targets test both.
template <class D, class V>
HWY_INLINE V KeepNaN(D, V a, V b, V r) {
  if constexpr (is_float<D>) {
#if !HWY_ARCH_X86 || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    r = hn::IfThenElse(hn::IsNaN(b), b, r);
#else
    (void)b;
#endif
    return hn::IfThenElse(hn::IsNaN(a), a, r);
  } else {
    return r;
  }
}

template <class D, class V>
HWY_INLINE V NodeMaximum(D d, V a, V b) {
  return KeepNaN(d, a, b, hn::Max(a, b));
}

template <class D, class V>
HWY_INLINE V NodeMinimum(D d, V a, V b) {
  return KeepNaN(d, a, b, hn::Min(a, b));
}

// ---- floating point only ----

template <class D, class V>
HWY_INLINE V NodeDiv(D, V a, V b) {
  static_assert(is_float<D>, "integers have floor_divide and trunc_divide");
  return hn::Div(a, b);
}

template <class D, class V>
HWY_INLINE V NodeSqrt(D, V a) {
  return hn::Sqrt(a);
}

template <class D, class V>
HWY_INLINE V NodeRsqrt(D d, V a) {
  return hn::Div(hn::Set(d, hn::TFromD<D>(1)), hn::Sqrt(a));
}

template <class D, class V>
HWY_INLINE V NodeFloor(D d, V a) {
  if constexpr (is_float<D>) {
#if HWY_TARGET == HWY_SCALAR  // Highway's version loses the sign of zero
    return MapLanes(d, a, [](hn::TFromD<D> x) -> hn::TFromD<D> { return std::floor(x); });
#else
    (void)d;
    return hn::Floor(a);
#endif
  } else {
    return a;
  }
}

template <class D, class V>
HWY_INLINE V NodeCeil(D d, V a) {
  if constexpr (is_float<D>) {
#if HWY_TARGET == HWY_SCALAR  // Highway's version loses the sign of zero
    return MapLanes(d, a, [](hn::TFromD<D> x) -> hn::TFromD<D> { return std::ceil(x); });
#else
    (void)d;
    return hn::Ceil(a);
#endif
  } else {
    return a;
  }
}

template <class D, class V>
HWY_INLINE V NodeTrunc(D d, V a) {
  if constexpr (is_float<D>) {
#if HWY_TARGET == HWY_SCALAR  // Highway's version loses the sign of zero
    return MapLanes(d, a, [](hn::TFromD<D> x) -> hn::TFromD<D> { return std::trunc(x); });
#else
    (void)d;
    return hn::Trunc(a);
#endif
  } else {
    return a;
  }
}

// Rounds halves to even.
template <class D, class V>
HWY_INLINE V NodeRound(D d, V a) {
  if constexpr (is_float<D>) {
#if HWY_TARGET == HWY_SCALAR  // Highway's version loses the sign of zero
    return MapLanes(d, a, [](hn::TFromD<D> x) -> hn::TFromD<D> { return std::nearbyint(x); });
#else
    (void)d;
    return hn::Round(a);
#endif
  } else {
    return a;
  }
}

// ---- division with rounding ----

// Returns whether any lane is zero; the caller rejects an integer division by zero.
template <class D, class V>
HWY_INLINE bool AnyZero(D d, V v) {
  return !hn::AllFalse(d, hn::Eq(v, hn::Zero(d)));
}

// C's quotient, but without traps: MIN / -1 wraps, and x / 0 is unspecified.
template <class D, class V>
HWY_INLINE V IntQuotient(D d, V a, V b) {
  using T = hn::TFromD<D>;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == 4) {
    // A double holds both operands exactly, and its quotient never rounds up to an integer.
    const hn::Half<D> dh;
    const hn::Repartition<double, D> dd;
    const auto lo =
        hn::Div(hn::PromoteTo(dd, hn::LowerHalf(dh, a)), hn::PromoteTo(dd, hn::LowerHalf(dh, b)));
    const auto hi =
        hn::Div(hn::PromoteTo(dd, hn::UpperHalf(dh, a)), hn::PromoteTo(dd, hn::UpperHalf(dh, b)));
    const V q = hn::Combine(d, hn::DemoteTo(dh, hi), hn::DemoteTo(dh, lo));
    return hn::IfThenElse(hn::Eq(b, hn::Set(d, T(-1))), hn::Neg(a), q);
  }
#endif
  return MapLanes2(d, a, b, [](T x, T y) -> T {
    if (y == 0) return 0;
    if (y == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(x));
    return x / y;
  });
}

// C's fmod. If the quotient is small enough to be exact up to one, a single FMA gives the exact
// remainder; larger quotients use libm.
template <class D, class V>
HWY_INLINE V FloatFmod(D d, V a, V b) {
  using T = hn::TFromD<D>;
  if constexpr (HWY_NATIVE_FMA) {
    const V q = hn::Trunc(hn::Div(a, b));
    const V size = hn::Abs(b);
    const auto exact =
        hn::And(hn::Lt(hn::Abs(q), SetFD(d, 0x1p22f, 0x1p51)), hn::Lt(size, SetInf(d)));
    if (HWY_LIKELY(hn::AllTrue(d, exact))) {
      // Uses |a|, so that a quotient rounded up gives a negative remainder.
      const V r = hn::NegMulAdd(hn::Abs(q), size, hn::Abs(a));
      return hn::CopySign(hn::IfThenElse(hn::Lt(r, hn::Zero(d)), hn::Add(r, size), r), a);
    }
  }
  return MapLanes2(d, a, b, [](T x, T y) -> T { return std::fmod(x, y); });
}

// Returns whether a nonzero remainder r has the opposite sign of the divisor b.
template <class D, class V>
HWY_INLINE hn::Mask<D> SignsDiffer(D d, V r, V b) {
  const V zero = hn::Zero(d);
  return hn::And(hn::Not(hn::Eq(r, zero)), hn::Xor(hn::Lt(r, zero), hn::Lt(b, zero)));
}

template <class D, class V>
HWY_INLINE V NodeFmod(D d, V a, V b) {
  if constexpr (is_float<D>) {
    return FloatFmod(d, a, b);
  } else {
    return hn::Sub(a, hn::Mul(IntQuotient(d, a, b), b));
  }
}

template <class D, class V>
HWY_INLINE V NodeRemainder(D d, V a, V b) {
  const V r = NodeFmod(d, a, b);
  return hn::IfThenElse(SignsDiffer(d, r, b), hn::Add(r, b), r);
}

template <class D, class V>
HWY_INLINE V NodeTruncDivide(D d, V a, V b) {
  if constexpr (is_float<D>) {
    return hn::Trunc(hn::Div(a, b));
  } else {
    return IntQuotient(d, a, b);
  }
}

// Python's //. The quotient of floats is computed from the exact remainder, as in ATen's div_floor
// and CPython's float_divmod: floor(a / b) is one too large if a / b rounds up to an integer.
template <class D, class V>
HWY_INLINE V NodeFloorDivide(D d, V a, V b) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1));
  if constexpr (is_float<D>) {
    const V zero = hn::Zero(d);
    const V quotient = hn::Div(a, b);
    const V mod = FloatFmod(d, a, b);
    V div = hn::Div(hn::Sub(a, mod), b);
    div = hn::Sub(div, hn::IfThenElseZero(SignsDiffer(d, mod, b), one));
    V r = hn::Floor(div);
    r = hn::Add(r, hn::IfThenElseZero(hn::Gt(hn::Sub(div, r), hn::Set(d, T(0.5))), one));
    r = hn::IfThenElse(hn::Eq(div, zero), hn::CopySign(zero, quotient), r);
    return hn::IfThenElse(hn::Eq(b, zero), quotient, r);
  } else {
    const V q = IntQuotient(d, a, b);
    const V r = hn::Sub(a, hn::Mul(q, b));
    return hn::Sub(q, hn::IfThenElseZero(SignsDiffer(d, r, b), one));
  }
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
