#include "backends/cpu-openmp/pooling/rows.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/pooling/rows.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch {
namespace cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Every stride-th element, strides 1 and 2. Reads stride * lanes elements.
template <class D>
HWY_INLINE hn::VFromD<D> Every(D d, const float* x, int64_t stride) {
  if (stride == 1) return hn::LoadU(d, x);
#if HWY_TARGET == HWY_SCALAR
  return hn::LoadU(d, x);
#else
  hn::VFromD<D> even, odd;
  hn::LoadInterleaved2(d, x, even, odd);
  return even;
#endif
}

// How many outputs can be done by whole vectors that read nothing past x[(n - 1) * stride].
HWY_INLINE int64_t Whole(int64_t stride, int64_t n, int64_t lanes) {
  if (stride > 2 || n == 0) return 0;
  const int64_t readable = (n - 1) * stride + 1;
  return readable / (stride * lanes) * lanes;
}

// Calls body(d, i) for the vectors of n outputs: whole ones, then ones of four, and returns how
// many that were.
template <class F>
HWY_INLINE int64_t ForVectors(int64_t stride, int64_t n, F&& body) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (const int64_t whole = Whole(stride, n, lanes); i < whole; i += lanes) body(d, i);
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d4;
  for (const int64_t whole = i + Whole(stride, n - i, 4); i < whole; i += 4) body(d4, i);
#endif
  return i;
}

void MaxRow(const float* x, int64_t stride, int64_t index, int64_t n, float* best, int32_t* which) {
  const int64_t i = ForVectors(stride, n, [&](auto d, int64_t i) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> di;
    const auto step = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(stride)));
    const auto value = Every(d, x + i * stride, stride);
    const auto old = hn::LoadU(d, best + i);
    // Ne is false of a NaN and itself where comparisons are ordered ones.
    const auto takes = hn::Or(hn::Gt(value, old), hn::IsNaN(value));
    const auto at = hn::Add(step, hn::Set(di, static_cast<int32_t>(index + i * stride)));
    hn::StoreU(hn::IfThenElse(takes, value, old), d, best + i);
    hn::StoreU(hn::IfThenElse(hn::RebindMask(di, takes), at, hn::LoadU(di, which + i)), di,
               which + i);
  });
  mytorch::cpu::max_row<float>(x + i * stride, stride, index + i * stride, n - i, best + i,
                               which + i);
}

#if HWY_TARGET != HWY_SCALAR
// As many outputs as there are lanes.
template <class D>
HWY_INLINE void Max2x2(D d, const float* top, int64_t pitch, int64_t first, float* best,
                       int64_t* which) {
  const hn::RebindToSigned<D> di;
  hn::VFromD<D> taps[4];
  hn::LoadInterleaved2(d, top, taps[0], taps[1]);
  hn::LoadInterleaved2(d, top + pitch, taps[2], taps[3]);
  const int64_t places[] = {0, 1, pitch, pitch + 1};
  const auto iota = hn::Iota(di, static_cast<int32_t>(first));
  auto value = taps[0];
  // Relative to the first tap; its own place is twice its lane.
  auto at = hn::Zero(di);
  for (int k = 1; k < 4; ++k) {
    const auto takes = hn::Or(hn::Gt(taps[k], value), hn::IsNaN(taps[k]));
    value = hn::IfThenElse(takes, taps[k], value);
    at =
        hn::IfThenElse(hn::RebindMask(di, takes), hn::Set(di, static_cast<int32_t>(places[k])), at);
  }
  hn::StoreU(value, d, best);
  at = hn::Add(at, hn::Add(iota, hn::Iota(di, 0)));
  const hn::Half<decltype(di)> half;
  const hn::Rebind<int64_t, decltype(half)> wide;
  hn::StoreU(hn::PromoteTo(wide, hn::LowerHalf(half, at)), wide, which);
  hn::StoreU(hn::PromoteTo(wide, hn::UpperHalf(half, at)), wide, which + hn::Lanes(half));
}

// Whole vectors, the last of which overlaps the one before.
template <class D>
HWY_INLINE void Max2x2By(D d, const float* top, int64_t pitch, int64_t index, int64_t n,
                         float* best, int64_t* which) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    i = std::min(i, n - lanes);
    Max2x2(d, top + 2 * i, pitch, index + 2 * i, best + i, which + i);
  }
}
#endif

void Max2x2Row(const float* top, int64_t pitch, int64_t index, int64_t n, float* best,
               int64_t* which) {
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 8> d8;
  const hn::CappedTag<float, 4> d4;
  if (n >= static_cast<int64_t>(hn::Lanes(d8))) {
    return Max2x2By(d8, top, pitch, index, n, best, which);
  }
  if (n >= 4) return Max2x2By(d4, top, pitch, index, n, best, which);
#endif
  mytorch::cpu::max_2x2_row<float>(top, pitch, index, n, best, which);
}

void AddRow(const float* x, int64_t stride, int64_t n, float* sum) {
  const int64_t i = ForVectors(stride, n, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, sum + i), Every(d, x + i * stride, stride)), d, sum + i);
  });
  mytorch::cpu::add_row<float>(x + i * stride, stride, n - i, sum + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace mytorch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu {

HWY_EXPORT(MaxRow);
HWY_EXPORT(Max2x2Row);
HWY_EXPORT(AddRow);

void max_row(const float* x, int64_t stride, int64_t index, int64_t n, float* best,
             int32_t* which) {
  HWY_DYNAMIC_DISPATCH(MaxRow)(x, stride, index, n, best, which);
}
void max_2x2_row(const float* top, int64_t pitch, int64_t index, int64_t n, float* best,
                 int64_t* which) {
  HWY_DYNAMIC_DISPATCH(Max2x2Row)(top, pitch, index, n, best, which);
}
void add_row(const float* x, int64_t stride, int64_t n, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddRow)(x, stride, n, sum);
}

}  // namespace mytorch::cpu
#endif  // HWY_ONCE
