// Transposes of square blocks in registers.
#if defined(MYTORCH_SIMD_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_SIMD_TRANSPOSE_INL_H_
#undef MYTORCH_SIMD_TRANSPOSE_INL_H_
#else
#define MYTORCH_SIMD_TRANSPOSE_INL_H_
#endif

#include <cstdint>

#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
// Transposes the squares that the 128-bit blocks of v[0], v[1], ... form: 2 x 2 elements of 8
// bytes, or 4 x 4 of 4 bytes.
template <class D>
HWY_INLINE void TransposeBlocks(D d, hn::VFromD<D>* v) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const auto low = hn::InterleaveLower(d, v[0], v[1]);
    v[1] = hn::InterleaveUpper(d, v[0], v[1]);
    v[0] = low;
  } else {
    const hn::Repartition<uint64_t, D> d64;
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, v[0], v[1]));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, v[0], v[1]));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, v[2], v[3]));
    const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, v[2], v[3]));
    v[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
    v[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
    v[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
    v[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
  }
}
#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
