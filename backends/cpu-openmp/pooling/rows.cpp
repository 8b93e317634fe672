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
// As many outputs as there are lanes, of the windows at `top`, whose first element has `index`.
template <class D>
HWY_INLINE void Max2x2(D d, const float* top, int64_t pitch, int64_t index, float* best,
                       int64_t* which) {
  const hn::RebindToSigned<D> di;
  using V = hn::VFromD<D>;
  V a, b, c, e;
  hn::LoadInterleaved2(d, top, a, b);
  hn::LoadInterleaved2(d, top + pitch, c, e);
  const auto takes = [](V x, V over) HWY_ATTR { return hn::Or(hn::Gt(x, over), hn::IsNaN(x)); };
  const auto right_above = takes(b, a), right_below = takes(e, c);
  const V above = hn::IfThenElse(right_above, b, a);
  const V below = hn::IfThenElse(right_below, e, c);
  const auto lower = takes(below, above);
  hn::StoreU(hn::IfThenElse(lower, below, above), d, best);
  // Relative to each window's first element.
  const auto one = hn::Set(di, 1);
  const auto row = hn::Set(di, static_cast<int32_t>(pitch));
  const auto at_above = hn::IfThenElseZero(hn::RebindMask(di, right_above), one);
  const auto at_below = hn::Add(row, hn::IfThenElseZero(hn::RebindMask(di, right_below), one));
  const auto lane = hn::Iota(di, 0);
  const auto first = hn::Add(hn::Set(di, static_cast<int32_t>(index)), hn::Add(lane, lane));
  const auto at = hn::Add(first, hn::IfThenElse(hn::RebindMask(di, lower), at_below, at_above));
  const hn::Half<decltype(di)> half;
  const hn::Rebind<int64_t, decltype(half)> wide;
  hn::StoreU(hn::PromoteTo(wide, hn::LowerHalf(half, at)), wide, which);
  hn::StoreU(hn::PromoteTo(wide, hn::UpperHalf(half, at)), wide, which + hn::Lanes(half));
}
#endif

void Max2x2Plane(const float* x, int64_t pitch, int64_t size, int64_t rows, int64_t n, float* best,
                 int64_t* which) {
  for (int64_t y = 0; y < rows; ++y) {
    const int64_t index = 2 * y * pitch;
    const float* top = x + index;
    int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::CappedTag<float, 8> d8;
    const hn::CappedTag<float, 4> d4;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d8));
    // Vectors may run over into the next row, whose results come later.
    while (i < n && index + pitch + 2 * (i + lanes) <= size && y * n + i + lanes <= rows * n) {
      Max2x2(d8, top + 2 * i, pitch, index + 2 * i, best + i, which + i);
      i += lanes;
    }
    // At the end they may not, and overlap the one before.
    for (; i < n && n >= lanes; i += lanes) {
      i = std::min(i, n - lanes);
      Max2x2(d8, top + 2 * i, pitch, index + 2 * i, best + i, which + i);
    }
    for (; i < n && n >= 4; i += 4) {
      i = std::min(i, n - 4);
      Max2x2(d4, top + 2 * i, pitch, index + 2 * i, best + i, which + i);
    }
#endif
    mytorch::cpu::max_2x2_row<float>(top + 2 * i, pitch, index + 2 * i, n - i, best + i, which + i);
    best += n;
    which += n;
  }
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
HWY_EXPORT(Max2x2Plane);
HWY_EXPORT(AddRow);

void max_row(const float* x, int64_t stride, int64_t index, int64_t n, float* best,
             int32_t* which) {
  HWY_DYNAMIC_DISPATCH(MaxRow)(x, stride, index, n, best, which);
}
void max_2x2_plane(const float* x, int64_t pitch, int64_t size, int64_t rows, int64_t n,
                   float* best, int64_t* which) {
  HWY_DYNAMIC_DISPATCH(Max2x2Plane)(x, pitch, size, rows, n, best, which);
}
void add_row(const float* x, int64_t stride, int64_t n, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddRow)(x, stride, n, sum);
}

}  // namespace mytorch::cpu
#endif  // HWY_ONCE
