#include "backends/cpu-openmp/convolution/implicit_microkernel.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/convolution/implicit_microkernel.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"
#include "backends/cpu-openmp/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A tile of 6 rows and 2 vectors keeps 12 sums in registers, which hides the latency of two adders.
// The rest of 16 registers holds two vectors of the panel and a broadcast element. The 6 pointers
// into the input fit the integer registers.
constexpr int64_t kTileRows = 6;

// All loops over a tile are unrolled, which keeps its sums in registers.
template <int64_t kRows, int64_t kVecs, class T>
HWY_INLINE void Tile(const ImplicitProduct<T>& g, const int32_t* HWY_RESTRICT place,
                     T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* rows[kRows];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) rows[i] = g.input + place[i];
  V sums[kRows][kVecs];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVecs; ++v) {
      sums[i][v] = g.accumulate         ? hn::LoadU(d, out + (i * kVecs + v) * lanes)
                   : g.start != nullptr ? hn::LoadU(d, g.start + v * lanes)
                                        : hn::Zero(d);
    }
  }
  const int32_t* HWY_RESTRICT step = g.step;
  const int32_t* const end = step + g.steps;
  const T* HWY_RESTRICT panel = g.panel;
  if constexpr (kVecs == 1) {
    // Separate sums of even and odd steps: as many independent sums as with two vectors.
    V odd[kRows];
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) odd[i] = hn::Zero(d);
#pragma GCC unroll 2
    for (; step + 2 <= end; step += 2) {
      const int64_t at0 = step[0], at1 = step[1];
      const V b0 = hn::LoadU(d, panel);
      const V b1 = hn::LoadU(d, panel + lanes);
#pragma GCC unroll 8
      for (int64_t i = 0; i < kRows; ++i) {
        sums[i][0] = hn::MulAdd(hn::Set(d, rows[i][at0]), b0, sums[i][0]);
        odd[i] = hn::MulAdd(hn::Set(d, rows[i][at1]), b1, odd[i]);
      }
      panel += 2 * lanes;
    }
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) sums[i][0] = hn::Add(sums[i][0], odd[i]);
  }
#pragma GCC unroll 4
  for (; step < end; ++step) {
    const int64_t at = *step;
    V b[kVecs];
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVecs; ++v) b[v] = hn::LoadU(d, panel + v * lanes);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
      const V a = hn::Set(d, rows[i][at]);
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVecs; ++v) sums[i][v] = hn::MulAdd(a, b[v], sums[i][v]);
    }
    panel += kVecs * lanes;
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVecs; ++v) {
      hn::StoreU(sums[i][v], d, out + (i * kVecs + v) * lanes);
    }
  }
}

template <int64_t kVecs, class T>
HWY_INLINE void Tiles(const ImplicitProduct<T>& g) {
  const int64_t width = kVecs * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const int32_t* place = g.place;
  T* out = g.out;
  // Tiles of nearly equal height, 5 and 4 rather than 6 and 3 for 9 rows, because a tile with few
  // rows does not hide the latency of its sums.
  const int64_t tiles = (g.rows + kTileRows - 1) / kTileRows;
  const int64_t height = g.rows / tiles;
  const int64_t higher = g.rows % tiles;
  int64_t t = 0;
  const auto run = [&](auto rows, int64_t until) HWY_ATTR {
    for (; t < until; ++t) {
      Tile<rows(), kVecs>(g, place, out);
      place += rows();
      out += rows() * width;
    }
  };
  const auto run_height = [&](int64_t rows, int64_t until) HWY_ATTR {
    switch (rows) {
      case 6:
        return run(std::integral_constant<int64_t, 6>(), until);
      case 5:
        return run(std::integral_constant<int64_t, 5>(), until);
      case 4:
        return run(std::integral_constant<int64_t, 4>(), until);
      case 3:
        return run(std::integral_constant<int64_t, 3>(), until);
      case 2:
        return run(std::integral_constant<int64_t, 2>(), until);
      default:
        return run(std::integral_constant<int64_t, 1>(), until);
    }
  };
  if (higher > 0) run_height(height + 1, higher);
  run_height(height, tiles);
}

template <class T>
HWY_INLINE void Product(const ImplicitProduct<T>& g) {
  if (g.rows == 0) return;
  if (g.vectors == 2) {
    Tiles<2>(g);
  } else {
    Tiles<1>(g);
  }
}

#if HWY_TARGET != HWY_SCALAR
#if HWY_TARGET <= HWY_AVX2
constexpr int64_t kSquareBytes = 32;
#else
constexpr int64_t kSquareBytes = 16;
#endif

template <class T>
HWY_INLINE void Square(const T* HWY_RESTRICT from, int64_t from_pitch, T* HWY_RESTRICT to,
                       int64_t to_pitch) {
  constexpr int64_t kSide = kSquareBytes / sizeof(T);
  const hn::CappedTag<T, kSide> d;
  using V = hn::VFromD<decltype(d)>;
  V v[kSide];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kSide; ++i) v[i] = hn::LoadU(d, from + i * from_pitch);
#if HWY_TARGET <= HWY_AVX2
  constexpr int64_t kHalf = kSide / 2;
  simd::HWY_NAMESPACE::TransposeBlocks(d, v);
  simd::HWY_NAMESPACE::TransposeBlocks(d, v + kHalf);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kHalf; ++i) {
    hn::StoreU(hn::ConcatLowerLower(d, v[kHalf + i], v[i]), d, to + i * to_pitch);
    hn::StoreU(hn::ConcatUpperUpper(d, v[kHalf + i], v[i]), d, to + (kHalf + i) * to_pitch);
  }
#else
  simd::HWY_NAMESPACE::TransposeBlocks(d, v);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kSide; ++i) hn::StoreU(v[i], d, to + i * to_pitch);
#endif
}
#endif  // HWY_TARGET != HWY_SCALAR

template <class T>
HWY_INLINE void Transpose(const T* from, int64_t from_pitch, int64_t rows, int64_t cols, T* to,
                          int64_t to_pitch) {
#if HWY_TARGET != HWY_SCALAR
  constexpr int64_t kSide = kSquareBytes / sizeof(T);
  if (rows >= kSide && cols >= kSide) {
    // The last squares of a row and of a column overlap the previous ones.
    for (int64_t r = 0; r < rows; r += kSide) {
      r = std::min(r, rows - kSide);
      for (int64_t c = 0; c < cols; c += kSide) {
        c = std::min(c, cols - kSide);
        Square(from + r * from_pitch + c, from_pitch, to + c * to_pitch + r, to_pitch);
      }
    }
    return;
  }
#endif
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) to[c * to_pitch + r] = from[r * from_pitch + c];
  }
}

// Copies whole vectors; the last vector of a row overlaps the previous one.
template <class D, class T>
HWY_INLINE void CopyRowsBy(D d, const T* HWY_RESTRICT from, int64_t from_pitch, int64_t rows,
                           int64_t width, T* HWY_RESTRICT to, int64_t to_pitch) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i + lanes < width; i += lanes) {
      hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    }
    hn::StoreU(hn::LoadU(d, from + width - lanes), d, to + width - lanes);
    from += from_pitch;
    to += to_pitch;
  }
}

template <class T>
HWY_INLINE void CopyRows(const T* from, int64_t from_pitch, int64_t rows, int64_t width, T* to,
                         int64_t to_pitch) {
  const hn::CappedTag<T, 32 / sizeof(T)> whole;
  const hn::CappedTag<T, 16 / sizeof(T)> half;
  const hn::CappedTag<T, 1> one;
  if (width >= static_cast<int64_t>(hn::Lanes(whole))) {
    CopyRowsBy(whole, from, from_pitch, rows, width, to, to_pitch);
  } else if (width >= static_cast<int64_t>(hn::Lanes(half))) {
    CopyRowsBy(half, from, from_pitch, rows, width, to, to_pitch);
  } else if (width > 0) {
    CopyRowsBy(one, from, from_pitch, rows, width, to, to_pitch);
  }
}

template <class T>
HWY_INLINE void AddTo(T* HWY_RESTRICT to, const T* HWY_RESTRICT from, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
  }
  for (; i < n; ++i) to[i] += from[i];
}

template <class T>
HWY_INLINE bool AllFinite(const T* HWY_RESTRICT x, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // Returns zero, or NaN if an element is not finite.
  auto differences = hn::Zero(d);
  T rest{};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    differences = hn::Add(differences, hn::Sub(v, v));
  }
  for (; i < n; ++i) rest += x[i] - x[i];
  return rest == T{} && hn::AllTrue(d, hn::Eq(differences, hn::Zero(d)));
}

template <class T>
HWY_INLINE int64_t LanesOf() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
}

template <class T>
constexpr ImplicitMicrokernels<T> kImplicitMicrokernels = {
    &LanesOf<T>, &Product<T>, &Transpose<T>, &CopyRows<T>, &AddTo<T>, &AllFinite<T>};

const ImplicitMicrokernels<float>& FloatImplicit() { return kImplicitMicrokernels<float>; }
const ImplicitMicrokernels<double>& DoubleImplicit() { return kImplicitMicrokernels<double>; }

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE_OF(float, mytorch::cpu, implicit_microkernels, FloatImplicit)
MYTORCH_EXPORT_TABLE_OF(double, mytorch::cpu, implicit_microkernels, DoubleImplicit)
