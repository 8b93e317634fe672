// Comparisons, logic on masks, bits and shifts of integers, selection, and bool <-> number.
#if defined(MYTORCH_SIMD_LOGIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_LOGIC_INL_H_
#undef MYTORCH_SIMD_LOGIC_INL_H_
#else
#define MYTORCH_SIMD_LOGIC_INL_H_
#endif

#include "backends/cpu-openmp/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

template <class D, class V>
HWY_INLINE hn::Mask<D> NodeEq(D, V a, V b) {
  return hn::Eq(a, b);
}

// Not hn::Ne, which on x86 is false for NaN.
template <class D, class V>
HWY_INLINE hn::Mask<D> NodeNe(D, V a, V b) {
  return hn::Not(hn::Eq(a, b));
}

template <class D, class V>
HWY_INLINE hn::Mask<D> NodeLt(D, V a, V b) {
  return hn::Lt(a, b);
}

template <class D, class V>
HWY_INLINE hn::Mask<D> NodeGt(D, V a, V b) {
  return hn::Gt(a, b);
}

template <class D, class V>
HWY_INLINE hn::Mask<D> NodeLe(D, V a, V b) {
  if constexpr (is_float<D>) {
    return hn::Le(a, b);
  } else {
    return hn::Not(hn::Gt(a, b));
  }
}

template <class D, class V>
HWY_INLINE hn::Mask<D> NodeGe(D, V a, V b) {
  if constexpr (is_float<D>) {
    return hn::Ge(a, b);
  } else {
    return hn::Not(hn::Lt(a, b));
  }
}

template <class D, class V>
HWY_INLINE hn::Mask<D> NodeIsnan(D d, V a) {
  if constexpr (is_float<D>) {
    return hn::IsNaN(a);
  } else {
    return hn::FirstN(d, 0);
  }
}

template <class D, class M>
HWY_INLINE M NodeLogicalAnd(D, M a, M b) {
  return hn::And(a, b);
}

template <class D, class M>
HWY_INLINE M NodeLogicalOr(D, M a, M b) {
  return hn::Or(a, b);
}

template <class D, class M>
HWY_INLINE M NodeLogicalXor(D, M a, M b) {
  return hn::Xor(a, b);
}

template <class D, class M>
HWY_INLINE M NodeLogicalNot(D, M a) {
  return hn::Not(a);
}

template <class D, class V>
HWY_INLINE V NodeBitwiseAnd(D, V a, V b) {
  return hn::And(a, b);
}

template <class D, class V>
HWY_INLINE V NodeBitwiseOr(D, V a, V b) {
  return hn::Or(a, b);
}

template <class D, class V>
HWY_INLINE V NodeBitwiseXor(D, V a, V b) {
  return hn::Xor(a, b);
}

template <class D, class V>
HWY_INLINE V NodeBitwiseNot(D, V a) {
  return hn::Not(a);
}

// Counts from 0 to the width less one; other counts shift everything out, as in ATen.
template <class D, class V>
HWY_INLINE hn::Mask<D> IsShiftCount(D d, V count) {
  using T = hn::TFromD<D>;
  return hn::AndNot(hn::Lt(count, hn::Zero(d)), hn::Lt(count, hn::Set(d, T(sizeof(T) * 8))));
}

template <class D, class V>
HWY_INLINE V NodeBitwiseLeftShift(D d, V a, V b) {
  const auto valid = IsShiftCount(d, b);
  return hn::IfThenElseZero(valid, hn::Shl(a, hn::IfThenElseZero(valid, b)));
}

template <class D, class V>
HWY_INLINE V NodeBitwiseRightShift(D d, V a, V b) {
  using T = hn::TFromD<D>;
  return hn::Shr(a, hn::IfThenElse(IsShiftCount(d, b), b, hn::Set(d, T(sizeof(T) * 8 - 1))));
}

template <class D, class V>
HWY_INLINE V NodeWhere(D, hn::Mask<D> condition, V a, V b) {
  return hn::IfThenElse(condition, a, b);
}

// bool -> number: 1 or 0.
template <class D>
HWY_INLINE hn::VFromD<D> NodeFromMask(D d, hn::Mask<D> m) {
  return hn::IfThenElseZero(m, hn::Set(d, hn::TFromD<D>(1)));
}

// number -> bool: x != 0, so NaN is true.
template <class D, class V>
HWY_INLINE hn::Mask<D> NodeToMask(D d, V a) {
  return hn::Not(hn::Eq(a, hn::Zero(d)));
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
