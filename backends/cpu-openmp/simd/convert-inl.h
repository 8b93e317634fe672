// The conversions of convert.h. A pair of types with a direct conversion has a `Step`; other pairs
// compose two or three steps over a small block on the stack, which stays in the L1 cache.
#if defined(MYTORCH_SIMD_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_CONVERT_INL_H_
#undef MYTORCH_SIMD_CONVERT_INL_H_
#else
#define MYTORCH_SIMD_CONVERT_INL_H_
#endif

#include <cstring>

#include "backends/cpu-openmp/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

// Element types without arithmetic.
struct Bool {
  uint8_t byte;
};
using Half = hwy::float16_t;
using BFloat = hwy::bfloat16_t;

// ---- one element ----

// Conversions whose C cast is undefined out of range.
template <typename To, typename From>
HWY_INLINE To TruncateScalar(From x) {
  constexpr From limit = -static_cast<From>(std::numeric_limits<To>::min());
  return x >= -limit && x < limit ? static_cast<To>(x) : std::numeric_limits<To>::min();
}

HWY_INLINE uint16_t BFloatBits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (x != x) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Float's own addition rounds to nearest even, including denormals.
HWY_INLINE uint16_t HalfBits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t sign = (bits >> 16) & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | ((bits >> 13) & 0x3ff));
  if (bits >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (bits < 0x38800000) {  // below the smallest normal: align the last place with 0.5's
    float magnitude;
    std::memcpy(&magnitude, &bits, 4);
    magnitude += 0.5f;
    std::memcpy(&bits, &magnitude, 4);
    return static_cast<uint16_t>(sign | (bits - 0x3f000000));
  }
  bits += 0xfff + ((bits >> 13) & 1);
  return static_cast<uint16_t>(sign | ((bits - 0x38000000) >> 13));
}

HWY_INLINE float HalfToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  uint32_t bits = static_cast<uint32_t>(h & 0x7fff) << 13;
  if (bits >= 0x0f800000) {
    bits += 0x70000000;  // infinity and NaN
  } else {
    bits += 0x38000000;
    if (bits < 0x38800000) {  // zero and denormals have no implicit bit
      float magnitude;
      bits += 0x00800000;
      std::memcpy(&magnitude, &bits, 4);
      magnitude -= 0x1p-14f;
      std::memcpy(&bits, &magnitude, 4);
    }
  }
  bits |= sign;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

template <typename To, typename From>
HWY_INLINE To ConvertScalar(From x) {
  if constexpr (std::is_same_v<From, Bool>) {
    return static_cast<To>(x.byte != 0);
  } else if constexpr (std::is_same_v<To, Bool>) {
    return Bool{static_cast<uint8_t>(x != From(0))};
  } else if constexpr (std::is_same_v<From, Half>) {
    return HalfToFloat(x.bits);
  } else if constexpr (std::is_same_v<From, BFloat>) {
    const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  } else if constexpr (std::is_same_v<To, Half>) {
    return Half{HalfBits(x)};
  } else if constexpr (std::is_same_v<To, BFloat>) {
    return BFloat{BFloatBits(x)};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return TruncateScalar<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

// ---- one vector ----

// Out of range, Highway saturates float -> int of the same width; x86 gives the minimum.
template <class DI, class V>
HWY_INLINE hn::VFromD<DI> TruncateVector(DI di, V x) {
  using T = hn::TFromD<DI>;
  const hn::RebindToFloat<DI> df;
  const V limit =
      hn::Set(df, static_cast<hn::TFromD<decltype(df)>>(is_f32<decltype(df)> ? 0x1p31 : 0x1p63));
  const auto in_range = hn::And(hn::Ge(x, hn::Neg(limit)), hn::Lt(x, limit));
  return hn::IfThenElse(hn::RebindMask(di, in_range), hn::ConvertTo(di, x),
                        hn::Set(di, std::numeric_limits<T>::min()));
}

template <class DF, class V>
HWY_INLINE hn::VFromD<hn::Rebind<uint16_t, DF>> BFloatVector(DF, V x) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint16_t, DF> d16;
  const auto bits = hn::BitCast(du, x);
  const auto top = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(top, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto nan = hn::Or(top, hn::Set(du, 0x40u));
  return hn::TruncateTo(d16, hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), nan, rounded));
}

// Converts whole vectors and returns the number of elements converted; the caller converts the
// rest. The general case has no vector form, so a scalar loop converts all elements.
template <typename From, typename To>
HWY_INLINE int64_t ConvertVectors(const From* HWY_RESTRICT from, To* HWY_RESTRICT to, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  using Wide = std::conditional_t<(sizeof(From) > sizeof(To)), From, To>;
  if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat> ||
                (std::is_same_v<From, float> && std::is_same_v<To, double>) ||
                (std::is_same_v<From, int32_t> && std::is_same_v<To, double>) ||
                (std::is_integral_v<From> && std::is_integral_v<To> && sizeof(From) < sizeof(To) &&
                 sizeof(To) <= 4) ||
                (std::is_same_v<From, int32_t> && std::is_same_v<To, int64_t>)) {
    const hn::ScalableTag<Wide> d;
    const hn::Rebind<From, decltype(d)> narrow;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(narrow, from + i)), d, to + i);
    }
  } else if constexpr (std::is_same_v<From, Bool> && std::is_same_v<To, int32_t>) {
    const hn::ScalableTag<int32_t> d;
    const hn::Rebind<uint8_t, decltype(d)> narrow;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto one = hn::Set(d, 1);
    for (; i + lanes <= n; i += lanes) {
      const auto byte =
          hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const uint8_t*>(from) + i));
      hn::StoreU(hn::Min(byte, one), d, to + i);
    }
  } else if constexpr (std::is_same_v<From, int32_t> && std::is_same_v<To, float>) {
    const hn::ScalableTag<float> d;
    const hn::ScalableTag<int32_t> di;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(hn::ConvertTo(d, hn::LoadU(di, from + i)), d, to + i);
    }
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, int32_t>) {
    const hn::ScalableTag<float> d;
    const hn::ScalableTag<int32_t> di;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(TruncateVector(di, hn::LoadU(d, from + i)), di, to + i);
    }
  } else if constexpr (std::is_same_v<From, double> && std::is_same_v<To, float>) {
    const hn::ScalableTag<double> d;
    const hn::Rebind<float, decltype(d)> narrow;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(hn::DemoteTo(narrow, hn::LoadU(d, from + i)), narrow, to + i);
    }
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, BFloat>) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<uint16_t, decltype(d)> narrow;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(BFloatVector(d, hn::LoadU(d, from + i)), narrow,
                 reinterpret_cast<uint16_t*>(to) + i);
    }
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, Half>) {
    // F16C. Highway's versions without it do not round to nearest.
    const hn::ScalableTag<float> d;
    const hn::Rebind<Half, decltype(d)> narrow;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(hn::DemoteTo(narrow, hn::LoadU(d, from + i)), narrow, to + i);
    }
#endif
  } else if constexpr ((std::is_same_v<From, int32_t> ||
                        std::is_same_v<From, float>)&&std::is_same_v<To, Bool>) {
    const hn::ScalableTag<From> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<uint8_t, decltype(d)> narrow;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) {
      const auto zero = hn::RebindMask(du, hn::Eq(hn::LoadU(d, from + i), hn::Zero(d)));
      hn::StoreU(hn::TruncateTo(narrow, hn::IfThenZeroElse(zero, hn::Set(du, 1u))), narrow,
                 reinterpret_cast<uint8_t*>(to) + i);
    }
  } else if constexpr (std::is_same_v<From, int32_t> && (sizeof(To) <= 2)) {
    const hn::ScalableTag<uint32_t> d;
    using U = std::make_unsigned_t<To>;
    const hn::Rebind<U, decltype(d)> narrow;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(hn::TruncateTo(narrow, hn::LoadU(d, reinterpret_cast<const uint32_t*>(from) + i)),
                 narrow, reinterpret_cast<U*>(to) + i);
    }
  }
#endif  // HWY_TARGET != HWY_SCALAR
  (void)from, (void)to, (void)n;
  return i;
}

// ---- arrays ----

template <typename From, typename To>
void ConvertStep(const void* from, void* to, int64_t n) {
  const From* HWY_RESTRICT f = static_cast<const From*>(from);
  To* HWY_RESTRICT t = static_cast<To*>(to);
  for (int64_t i = ConvertVectors(f, t, n); i < n; ++i) t[i] = ConvertScalar<To>(f[i]);
}

template <typename T>
void CopyStep(const void* from, void* to, int64_t n) {
  if (n > 0 && from != to) std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
}

// bool -> bool makes the bytes 0 and 1.
template <>
inline void CopyStep<Bool>(const void* from, void* to, int64_t n) {
  const uint8_t* f = static_cast<const uint8_t*>(from);
  uint8_t* t = static_cast<uint8_t*>(to);
  for (int64_t i = 0; i < n; ++i) t[i] = f[i] != 0;
}

template <typename T>
inline constexpr bool is_16_bit_float = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;
template <typename T>
inline constexpr bool is_small_int = std::is_integral_v<T> && sizeof(T) <= 2;

// The type between From and To, or void if a single step suffices.
template <typename From, typename To>
constexpr auto MiddleType() {
  if constexpr (std::is_same_v<From, To>) {
    return static_cast<void*>(nullptr);
  } else if constexpr (is_16_bit_float<From> && !std::is_same_v<To, float>) {
    return static_cast<float*>(nullptr);
  } else if constexpr (is_16_bit_float<To> && !std::is_same_v<From, float>) {
    return static_cast<float*>(nullptr);
  } else if constexpr ((std::is_same_v<From, Bool> ||
                        is_small_int<From>)&&!std::is_same_v<To, int32_t>) {
    return static_cast<int32_t*>(nullptr);
  } else if constexpr (std::is_floating_point_v<From> && std::is_same_v<To, uint8_t>) {
    return static_cast<int64_t*>(nullptr);
  } else if constexpr (std::is_floating_point_v<From> && is_small_int<To>) {
    return static_cast<int32_t*>(nullptr);
  } else {
    return static_cast<void*>(nullptr);
  }
}

template <typename From, typename To>
void ConvertArray(const void* from, void* to, int64_t n) {
  using Middle = std::remove_pointer_t<decltype(MiddleType<From, To>())>;
  if constexpr (std::is_same_v<From, To>) {
    CopyStep<From>(from, to, n);
  } else if constexpr (std::is_void_v<Middle>) {
    ConvertStep<From, To>(from, to, n);
  } else {
    constexpr int64_t kBlock = 512;
    alignas(64) Middle block[kBlock];
    const From* f = static_cast<const From*>(from);
    To* t = static_cast<To*>(to);
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t count = HWY_MIN(n - i, kBlock);
      ConvertArray<From, Middle>(f + i, block, count);
      ConvertArray<Middle, To>(block, t + i, count);
    }
  }
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
