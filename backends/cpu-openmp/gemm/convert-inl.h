// Loads and stores of vectors of the compute type, from and to elements of the storage type.
#if defined(MYTORCH_GEMM_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_GEMM_CONVERT_INL_H_
#undef MYTORCH_GEMM_CONVERT_INL_H_
#else
#define MYTORCH_GEMM_CONVERT_INL_H_
#endif

#include "backends/cpu-openmp/gemm/storage.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// F16C comes with AVX2. Highway's emulation for older targets does not round to nearest.
#if HWY_TARGET <= HWY_AVX2
inline constexpr bool kHasF16C = true;
#else
inline constexpr bool kHasF16C = false;
#endif

// Loads Lanes(d) elements from any address.
template <class D, class T>
HWY_INLINE hn::VFromD<D> load_compute(D d, const T* from) {
  if constexpr (kComputesInPlace<T>) {
    return hn::LoadU(d, from);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<uint16_t, D> du16;
    const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(from));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
  } else if constexpr (std::is_same_v<T, Float16> && kHasF16C) {
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::PromoteTo(d, hn::LoadU(df16, reinterpret_cast<const hwy::float16_t*>(from)));
  } else if constexpr (std::is_same_v<T, Float16>) {
    HWY_ALIGN float lanes[hn::MaxLanes(d)];
    for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = load_scalar(from[i]);
    return hn::Load(d, lanes);
  } else {
    const hn::Rebind<T, D> narrow;
    return hn::PromoteTo(d, hn::LoadU(narrow, from));
  }
}

template <class D, class T>
HWY_INLINE void store_compute(D d, hn::VFromD<D> value, T* to) {
  if constexpr (kComputesInPlace<T>) {
    hn::StoreU(value, d, to);
  } else if constexpr (std::is_same_v<T, Float16> && kHasF16C) {
    const hn::Rebind<hwy::float16_t, D> df16;
    hn::StoreU(hn::DemoteTo(df16, value), df16, reinterpret_cast<hwy::float16_t*>(to));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    // Unlike Highway's conversion, which truncates, this rounds to nearest even and keeps NaN
    // quiet.
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<uint16_t, D> du16;
    const auto bits = hn::BitCast(du, value);
    const auto high = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(high, hn::Set(du, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF))));
    const auto nan = hn::RebindMask(du, hn::IsNaN(value));
    const auto result = hn::IfThenElse(nan, hn::Or(high, hn::Set(du, 0x40)), rounded);
    hn::StoreU(hn::TruncateTo(du16, result), du16, reinterpret_cast<uint16_t*>(to));
  } else if constexpr (std::is_same_v<T, Float16>) {
    HWY_ALIGN float lanes[hn::MaxLanes(d)];
    hn::Store(value, d, lanes);
    for (size_t i = 0; i < hn::Lanes(d); ++i) store_scalar(lanes[i], to + i);
  } else {
    const hn::Rebind<T, D> narrow;
    hn::StoreU(hn::TruncateTo(narrow, value), narrow, to);
  }
}

// Returns a * b + c, which Highway has only for floating point.
template <class V>
HWY_INLINE V multiply_add(V a, V b, V c) {
  if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
    return hn::MulAdd(a, b, c);
  } else {
    return hn::Add(hn::Mul(a, b), c);
  }
}

}  // namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MYTORCH_GEMM_CONVERT_INL_H_
