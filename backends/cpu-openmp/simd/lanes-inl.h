// Helpers for the vector mathematics: polynomials, clamps that keep NaN, and a scalar call per lane
// for the inputs (or targets) for which a vector form would not pay off.
#if defined(MYTORCH_SIMD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_LANES_INL_H_
#undef MYTORCH_SIMD_LANES_INL_H_
#else
#define MYTORCH_SIMD_LANES_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
inline constexpr bool is_f32 = std::is_same_v<hn::TFromD<D>, float>;
template <class D>
inline constexpr bool is_float = std::is_floating_point_v<hn::TFromD<D>>;

// Applies a scalar function to each lane. Not inlined, because it is the rare path of hot loops.
template <class D, class V>
HWY_NOINLINE V MapLanes(D d, V a, hn::TFromD<D> (*f)(hn::TFromD<D>)) {
  using T = hn::TFromD<D>;
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  hn::Store(a, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f(lanes[i]);
  return hn::Load(d, lanes);
}

template <class D, class V>
HWY_NOINLINE V MapLanes2(D d, V a, V b, hn::TFromD<D> (*f)(hn::TFromD<D>, hn::TFromD<D>)) {
  using T = hn::TFromD<D>;
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  HWY_ALIGN T others[hn::MaxLanes(d)];
  hn::Store(a, d, lanes);
  hn::Store(b, d, others);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = f(lanes[i], others[i]);
  return hn::Load(d, lanes);
}

// A polynomial, highest coefficient first, as even part + x * odd part. This takes one more product
// than Horner's scheme but halves the dependency chain, which out-of-order windows cannot hide
// completely (exp gains 20 % on Zen 4).
template <class D, class V, typename T, typename... C>
HWY_INLINE V Poly(D d, V x, T highest, T next, C... rest) {
  using L = hn::TFromD<D>;
  const V z = hn::Mul(x, x);
  V r0 = hn::Set(d, static_cast<L>(highest));
  V r1 = hn::Set(d, static_cast<L>(next));
  // Each step continues one of the two parts, alternately.
  ((r0 = hn::MulAdd(r0, z, hn::Set(d, static_cast<L>(rest))), std::swap(r0, r1)), ...);
  return hn::MulAdd(r0, x, r1);
}

// The same by Horner's scheme, whose rounding errors are smaller.
template <class D, class V, typename T, typename... C>
HWY_INLINE V Horner(D d, V x, T highest, C... rest) {
  using L = hn::TFromD<D>;
  V r = hn::Set(d, static_cast<L>(highest));
  ((r = hn::MulAdd(r, x, hn::Set(d, static_cast<L>(rest)))), ...);
  return r;
}

// A sum of c[k] T_k(t), highest coefficient first, by Clenshaw's recurrence. The difference is off
// the chain of dependent operations.
template <class D, class V, typename T, typename... C>
HWY_INLINE V Clenshaw(D d, V t, T highest, C... rest) {
  using L = hn::TFromD<D>;
  const V twice = hn::Add(t, t);
  V sum = hn::Set(d, static_cast<L>(highest)), after = hn::Zero(d), step = twice;
  size_t left = sizeof...(rest);
  ((step = --left == 0 ? t : twice,
    after = std::exchange(sum,
                          hn::MulAdd(step, sum, hn::Sub(hn::Set(d, static_cast<L>(rest)), after)))),
   ...);
  return sum;
}

// min(max(x, lo), hi) where NaN stays NaN: x86's minps and maxps return their second operand when
// either is NaN, other targets differ.
template <class D, class V>
HWY_INLINE V ClampMax(D, V x, V hi) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Min(hi, x);
#else
  return hn::IfThenElse(hn::Gt(x, hi), hi, x);
#endif
}

template <class D, class V>
HWY_INLINE V ClampMin(D, V x, V lo) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(lo, x);
#else
  return hn::IfThenElse(hn::Lt(x, lo), lo, x);
#endif
}

template <class D, class V>
HWY_INLINE V Clamp(D d, V x, V lo, V hi) {
  return ClampMax(d, ClampMin(d, x, lo), hi);
}

template <class D>
HWY_INLINE hn::VFromD<D> SetNaN(D d) {
  return hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN());
}

template <class D>
HWY_INLINE hn::VFromD<D> SetInf(D d) {
  return hn::Set(d, std::numeric_limits<hn::TFromD<D>>::infinity());
}

// Selects the constant for the lane type.
template <class D>
HWY_INLINE hn::VFromD<D> SetFD(D d, float f, double g) {
  if constexpr (is_f32<D>) {
    return hn::Set(d, f);
  } else {
    return hn::Set(d, g);
  }
}

// A shift by a lane type's mantissa width; Bits are the unsigned lanes of the same width.
template <class D>
using Bits = hn::RebindToUnsigned<D>;
template <class D>
inline constexpr int mantissa_bits = is_f32<D> ? 23 : 52;

// 1.5 * 2^mantissa: adding it to a small number rounds that number to an integer, which is then in
// the low bits of the sum.
template <class D>
inline constexpr hn::TFromD<D> round_magic = static_cast<hn::TFromD<D>>(is_f32<D>
                                                                            ? 12582912.0
                                                                            : 6755399441055744.0);

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
