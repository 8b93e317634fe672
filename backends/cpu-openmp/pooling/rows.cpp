#include "backends/cpu-openmp/pooling/rows.h"

#include <algorithm>

#include "backends/cpu-openmp/pooling/separable.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/pooling/rows.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
using FloatRows = PlainRows<float>;
#else
using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using V = hn::VFromD<D>;
using VI = hn::VFromD<DI>;

HWY_INLINE int64_t LanesOf(D d) { return static_cast<int64_t>(hn::Lanes(d)); }

// Keeps the maximum and its position: the first of equal elements; a NaN always replaces.
HWY_INLINE void Take(V x, VI at, V& value, VI& place) {
  const auto takes = hn::Or(hn::Gt(x, value), hn::IsNaN(x));
  value = hn::IfThenElse(takes, x, value);
  place = hn::IfThenElse(hn::RebindMask(DI(), takes), at, place);
}

// PlainRows with vectors. kKernel is the number of taps, or 0 if it is known only at run time.
struct FloatRows : PlainRows<float> {
  static void split(const Phases& phases, const float* row, float* apart) {
    const D d;
    int64_t i = 0;
    if (phases.stride() == 1) {
      std::copy(row, row + phases.row_size(), apart + phases.element(0));
    } else if (phases.stride() == 2 && phases.row_size() > 1) {
      float* even = apart + phases.element(0);
      float* odd = apart + phases.element(1);
      const int64_t pairs = phases.row_size() / 2;
      for (; i + LanesOf(d) <= pairs; i += LanesOf(d)) {
        V a, b;
        hn::LoadInterleaved2(d, row + 2 * i, a, b);
        hn::StoreU(a, d, even + i);
        hn::StoreU(b, d, odd + i);
      }
      for (; i < pairs; ++i) even[i] = row[2 * i], odd[i] = row[2 * i + 1];
      if (phases.row_size() % 2 != 0) even[i] = row[2 * i];
    } else {
      phases.split(row, apart);
    }
  }

  template <int kKernel>
  static HWY_INLINE void max_some_taps(const float* apart, const int64_t* taps,
                                       const Window& window, int64_t row, const int32_t* start,
                                       int64_t n, float* best, int32_t* which) {
    const D d;
    const DI di;
    const auto number = [&](int64_t i) HWY_ATTR { return hn::Set(di, static_cast<int32_t>(i)); };
    const VI dilation = number(window.dilation), here = number(row);
    const VI steps = hn::Mul(hn::Iota(di, 0), number(window.stride));
    const int64_t kernel = kKernel > 0 ? kKernel : window.kernel;
    for (int64_t i = 0; i < n; i += LanesOf(d)) {
      V value = hn::LoadU(d, apart + taps[0] + i);
      VI place = hn::Add(here, hn::LoadU(di, start + i));
      VI at = hn::Add(steps, number(row + window.place(i, 0)));
      for (int64_t k = 1; k < kernel; ++k) {
        at = hn::Add(at, dilation);
        Take(hn::LoadU(d, apart + taps[k] + i), at, value, place);
      }
      hn::StoreU(value, d, best + i);
      hn::StoreU(place, di, which + i);
    }
  }
  static void max_taps(const float* apart, const int64_t* taps, const Window& window, int64_t row,
                       const int32_t* start, int64_t n, float* best, int32_t* which) {
    if (window.kernel == 3) {
      max_some_taps<3>(apart, taps, window, row, start, n, best, which);
    } else {
      max_some_taps<0>(apart, taps, window, row, start, n, best, which);
    }
  }

  static void max_rows(const float* const* values, const int32_t* const* places, int64_t count,
                       int64_t n, float* best, int64_t* which) {
    const D d;
    const DI di;
    const hn::Half<DI> half;
    const hn::Rebind<int64_t, decltype(half)> wide;
    const int64_t lanes = LanesOf(d);
    for (int64_t i = 0; i < n; i += lanes) {
      // The last vector overlaps the previous one, if any.
      if (i + lanes > n && n >= lanes) i = n - lanes;
      V value = hn::LoadU(d, values[0] + i);
      VI place = hn::LoadU(di, places[0] + i);
      for (int64_t k = 1; k < count; ++k) {
        Take(hn::LoadU(d, values[k] + i), hn::LoadU(di, places[k] + i), value, place);
      }
      if (n < lanes) {
        HWY_ALIGN float some[hn::MaxLanes(d)];
        HWY_ALIGN int32_t some_places[hn::MaxLanes(di)];
        hn::Store(value, d, some);
        hn::Store(place, di, some_places);
        std::copy(some, some + n, best);
        std::copy(some_places, some_places + n, which);
        return;
      }
      hn::StoreU(value, d, best + i);
      hn::StoreU(hn::PromoteTo(wide, hn::LowerHalf(half, place)), wide, which + i);
      hn::StoreU(hn::PromoteTo(wide, hn::UpperHalf(half, place)), wide, which + i + lanes / 2);
    }
  }

  static float sum(const float* x, int64_t n) {
    const D d;
    V sum = hn::Zero(d);
    int64_t i = 0;
    for (; i + LanesOf(d) <= n; i += LanesOf(d)) sum = hn::Add(sum, hn::LoadU(d, x + i));
    return hn::GetLane(hn::SumOfLanes(d, sum)) + PlainRows<float>::sum(x + i, n - i);
  }

  // Returns the sum of piece(k), k < count, of n elements each. Four vectors are summed in parallel
  // to hide the latency of additions.
  template <class F>
  static HWY_INLINE void sum_pieces(int64_t count, int64_t n, float* to, F&& piece) {
    const D d;
    const int64_t lanes = LanesOf(d);
    if (count <= 0) {
      std::fill(to, to + n, 0.0f);
      return;
    }
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      const float* p = piece(0) + i;
      V a = hn::LoadU(d, p), b = hn::LoadU(d, p + lanes);
      V c = hn::LoadU(d, p + 2 * lanes), e = hn::LoadU(d, p + 3 * lanes);
      for (int64_t k = 1; k < count; ++k) {
        p = piece(k) + i;
        a = hn::Add(a, hn::LoadU(d, p));
        b = hn::Add(b, hn::LoadU(d, p + lanes));
        c = hn::Add(c, hn::LoadU(d, p + 2 * lanes));
        e = hn::Add(e, hn::LoadU(d, p + 3 * lanes));
      }
      hn::StoreU(a, d, to + i);
      hn::StoreU(b, d, to + i + lanes);
      hn::StoreU(c, d, to + i + 2 * lanes);
      hn::StoreU(e, d, to + i + 3 * lanes);
    }
    for (; i + lanes <= n; i += lanes) {
      V a = hn::LoadU(d, piece(0) + i);
      for (int64_t k = 1; k < count; ++k) a = hn::Add(a, hn::LoadU(d, piece(k) + i));
      hn::StoreU(a, d, to + i);
    }
    for (; i < n; ++i) {
      float sum = piece(0)[i];
      for (int64_t k = 1; k < count; ++k) sum += piece(k)[i];
      to[i] = sum;
    }
  }
  static void sum_rows(const float* x, int64_t pitch, int64_t count, int64_t n, float* to) {
    sum_pieces(count, n, to, [=](int64_t k) HWY_ATTR { return x + k * pitch; });
  }
  static void sum_taps(const float* apart, const int64_t* taps, int64_t count, int64_t n,
                       float* to) {
    sum_pieces(count, n, to, [=](int64_t k) HWY_ATTR { return apart + taps[k]; });
  }
  static void add(const float* x, int64_t n, float* to) {
    const D d;
    int64_t i = 0;
    for (; i + LanesOf(d) <= n; i += LanesOf(d)) {
      hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, x + i)), d, to + i);
    }
    PlainRows<float>::add(x + i, n - i, to + i);
  }
  static void divide(const float* x, const float* counts, float count, int64_t n, float* to) {
    const D d;
    int64_t i = 0;
    for (; i + LanesOf(d) <= n; i += LanesOf(d)) {
      const V v = hn::LoadU(d, x + i);
      const V mean = hn::Div(v, hn::Mul(hn::Set(d, count), hn::LoadU(d, counts + i)));
      hn::StoreU(hn::IfThenZeroElse(hn::Eq(v, hn::Zero(d)), mean), d, to + i);
    }
    PlainRows<float>::divide(x + i, counts + i, count, n - i, to + i);
  }
};
#endif

// Wrappers for this instruction set, into which the functions of separable.h are inlined.
void MaxPlane(const Pool& pool, const float* x, float* best, int64_t* which, int64_t* memory) {
  max_plane_by<FloatRows>(pool, x, best, which, memory);
}
void MeanPlane(const Pool& pool, const float* x, float* mean, const float* counts,
               const float* row_counts, int64_t* memory) {
  mean_plane_by<FloatRows>(pool, x, mean, counts, row_counts, memory);
}
void MeanGradientPlane(const Pool& pool, const float* grad, float* to, const float* counts,
                       const float* row_counts, int64_t* memory) {
  mean_gradient_plane_by<FloatRows>(pool, grad, to, counts, row_counts, memory);
}

#if HWY_TARGET != HWY_SCALAR
// Computes one vector of outputs, for the windows at `top`, whose first element has index `index`.
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
    // Vectors may extend into the next row, which is computed later.
    while (i < n && index + pitch + 2 * (i + lanes) <= size && y * n + i + lanes <= rows * n) {
      Max2x2(d8, top + 2 * i, pitch, index + 2 * i, best + i, which + i);
      i += lanes;
    }
    // At the end they may not: the last vector overlaps the previous one.
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

#if HWY_TARGET != HWY_SCALAR
// One vector of channels.
template <class D>
HWY_INLINE void MaxOfTaps(D d, const float* input, const int64_t* at, const int32_t* which,
                          int64_t taps, int32_t start, float* best, int64_t* places) {
  const hn::RebindToSigned<D> di;
  auto value = hn::Set(d, lowest<float>());
  auto place = hn::Set(di, start);
  for (int64_t t = 0; t < taps; ++t) {
    const auto x = hn::LoadU(d, input + at[t]);
    const auto takes = hn::Or(hn::Gt(x, value), hn::IsNaN(x));
    value = hn::IfThenElse(takes, x, value);
    place = hn::IfThenElse(hn::RebindMask(di, takes), hn::Set(di, which[t]), place);
  }
  hn::StoreU(value, d, best);
  const hn::Half<decltype(di)> half;
  const hn::Rebind<int64_t, decltype(half)> wide;
  hn::StoreU(hn::PromoteTo(wide, hn::LowerHalf(half, place)), wide, places);
  hn::StoreU(hn::PromoteTo(wide, hn::UpperHalf(half, place)), wide, places + hn::Lanes(half));
}
#endif

void MaxChannels(const float* input, const int64_t* at, const int32_t* which, int64_t taps,
                 int32_t start, int64_t n, float* best, int64_t* places) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 8> d8;
  const hn::CappedTag<float, 4> d4;
  for (const int64_t lanes = static_cast<int64_t>(hn::Lanes(d8)); i + lanes <= n; i += lanes) {
    MaxOfTaps(d8, input + i, at, which, taps, start, best + i, places + i);
  }
  for (; i + 4 <= n; i += 4) {
    MaxOfTaps(d4, input + i, at, which, taps, start, best + i, places + i);
  }
#endif
  mytorch::cpu::max_channels<float>(input + i, at, which, taps, start, n - i, best + i, places + i);
}

const PoolingKernels<float>& FloatPooling() {
  static constexpr PoolingKernels<float> kernels = {&MaxPlane, &MeanPlane, &MeanGradientPlane,
                                                    &Max2x2Plane, &MaxChannels};
  return kernels;
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE_OF(float, mytorch::cpu, pooling_kernels, FloatPooling)
