#include "backends/cpu-openmp/embedding/rotate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/embedding/rotate.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rotates n pairs (x[i], y[i]) by the angles; `sign` is -1 for the opposite direction. `x` and `y`
// may be the results.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE void RotatePair(D d, V x, V y, V c, V s, V* to_x, V* to_y) {
  *to_x = hn::NegMulAdd(y, s, hn::Mul(x, c));
  *to_y = hn::MulAdd(x, s, hn::Mul(y, c));
  (void)d;
}

template <class T>
HWY_INLINE void RotateHalves(const T* row, const T* cos, const T* sin, int64_t n, T sign, T* to) {
  const hn::ScalableTag<T> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V by = hn::Set(d, sign);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    V x, y;
    RotatePair(d, hn::LoadU(d, row + i), hn::LoadU(d, row + n + i), hn::LoadU(d, cos + i),
               hn::Mul(by, hn::LoadU(d, sin + i)), &x, &y);
    hn::StoreU(x, d, to + i);
    hn::StoreU(y, d, to + n + i);
  }
  const hn::CappedTag<T, 1> one;
  for (; i < n; ++i) {
    hn::VFromD<decltype(one)> x, y;
    RotatePair(one, hn::LoadU(one, row + i), hn::LoadU(one, row + n + i), hn::LoadU(one, cos + i),
               hn::Set(one, sign * sin[i]), &x, &y);
    hn::StoreU(x, one, to + i);
    hn::StoreU(y, one, to + n + i);
  }
}

template <class T>
HWY_INLINE void RotateNeighbors(const T* row, const T* cos, const T* sin, int64_t n, T sign,
                                T* to) {
  const hn::ScalableTag<T> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V by = hn::Set(d, sign);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    V x, y;
    hn::LoadInterleaved2(d, row + 2 * i, x, y);
    RotatePair(d, x, y, hn::LoadU(d, cos + i), hn::Mul(by, hn::LoadU(d, sin + i)), &x, &y);
    hn::StoreInterleaved2(x, y, d, to + 2 * i);
  }
  const hn::CappedTag<T, 1> one;
  for (; i < n; ++i) {
    hn::VFromD<decltype(one)> x, y;
    RotatePair(one, hn::LoadU(one, row + 2 * i), hn::LoadU(one, row + 2 * i + 1),
               hn::LoadU(one, cos + i), hn::Set(one, sign * sin[i]), &x, &y);
    hn::StoreU(x, one, to + 2 * i);
    hn::StoreU(y, one, to + 2 * i + 1);
  }
}

template <class T>
constexpr Rotations<T> kRotations = {&RotateHalves<T>, &RotateNeighbors<T>};

const Rotations<float>& FloatRotations() { return kRotations<float>; }
const Rotations<double>& DoubleRotations() { return kRotations<double>; }

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE_OF(float, mytorch::cpu, rotations, FloatRotations)
MYTORCH_EXPORT_TABLE_OF(double, mytorch::cpu, rotations, DoubleRotations)
