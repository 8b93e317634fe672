#include "backends/cpu-openmp/simd/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/simd/convert.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

template <typename From>
ConvertFn ConvertFrom(int to) {
  static constexpr ConvertFn table[] = {ConvertArray<From, Bool>,    ConvertArray<From, uint8_t>,
                                        ConvertArray<From, int8_t>,  ConvertArray<From, int16_t>,
                                        ConvertArray<From, int32_t>, ConvertArray<From, int64_t>,
                                        ConvertArray<From, Half>,    ConvertArray<From, BFloat>,
                                        ConvertArray<From, float>,   ConvertArray<From, double>};
  return table[to];
}

// Types are identified by their position in ConvertFrom's table.
ConvertFn ConvertBetween(int from, int to) {
  static constexpr ConvertFn (*table[])(int) = {
      ConvertFrom<Bool>,    ConvertFrom<uint8_t>, ConvertFrom<int8_t>, ConvertFrom<int16_t>,
      ConvertFrom<int32_t>, ConvertFrom<int64_t>, ConvertFrom<Half>,   ConvertFrom<BFloat>,
      ConvertFrom<float>,   ConvertFrom<double>};
  return table[from](to);
}

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::simd {
HWY_EXPORT(ConvertBetween);

namespace {
// Returns the position of a type in the tables above, or -1.
int type_index(mt_dtype t) {
  switch (t.code * 256 + t.bits) {
    case MT_BOOL * 256 + 8:
      return 0;
    case MT_UINT * 256 + 8:
      return 1;
    case MT_INT * 256 + 8:
      return 2;
    case MT_INT * 256 + 16:
      return 3;
    case MT_INT * 256 + 32:
      return 4;
    case MT_INT * 256 + 64:
      return 5;
    case MT_FLOAT * 256 + 16:
      return 6;
    case MT_BFLOAT * 256 + 16:
      return 7;
    case MT_FLOAT * 256 + 32:
      return 8;
    case MT_FLOAT * 256 + 64:
      return 9;
    default:
      return -1;
  }
}
}  // namespace

ConvertFn get_convert(mt_dtype from, mt_dtype to) {
  const int f = type_index(from);
  const int t = type_index(to);
  if (f < 0 || t < 0) return nullptr;
  return HWY_DYNAMIC_DISPATCH(ConvertBetween)(f, t);
}

}  // namespace mytorch::simd
#endif  // HWY_ONCE
