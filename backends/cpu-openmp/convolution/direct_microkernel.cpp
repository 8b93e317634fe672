#include "backends/cpu-openmp/convolution/direct_microkernel.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/convolution/direct_microkernel.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A tile holds 24 sums with 32 registers, and 12 with 16: enough to hide the latency of two adders.
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM;
constexpr int64_t kWide = kManyRegisters ? 8 : 4;  // channels of a tile
constexpr int64_t kVectors = 3;                    // vectors of a tile
constexpr int64_t kMostVectors = 6;                // for a single channel

// All loops over a tile are unrolled, which keeps its sums in registers.

// Computes vectors [first, first + kVecs) of each row. The last vector of a row ends at its end.
template <int64_t kChannels, int64_t kVecs, class T>
HWY_INLINE void ProductTiles(const DirectProduct<T>& r, int64_t o, int64_t first) {
  const hn::ScalableTag<T> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool narrow = r.width < lanes;
  int64_t x[kVecs];
#pragma GCC unroll 8
  for (int64_t v = 0; v < kVecs; ++v) {
    x[v] = narrow ? 0 : std::min((first + v) * lanes, r.width - lanes);
  }
  const T* HWY_RESTRICT input = r.input;
  const T* HWY_RESTRICT start = r.start + o;
  const int32_t* HWY_RESTRICT const step = r.step;
  const int64_t steps = r.steps, panel_pitch = r.panel_pitch, plane = r.out_plane;
  T* HWY_RESTRICT out = r.out + o * plane;
  for (int64_t y = 0; y < r.rows; ++y, input += r.input_pitch, out += r.out_pitch) {
    V sums[kChannels][kVecs];
#pragma GCC unroll 8
    for (int64_t i = 0; i < kChannels; ++i) {
      const V value = hn::Set(d, start[i]);
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVecs; ++v) sums[i][v] = value;
    }
    const T* HWY_RESTRICT panel = r.panel + o;
#pragma GCC unroll 3
    for (int64_t s = 0; s < steps; ++s, panel += panel_pitch) {
      const T* at = input + step[s];
      V in[kVecs];
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVecs; ++v) in[v] = hn::LoadU(d, at + x[v]);
#pragma GCC unroll 8
      for (int64_t i = 0; i < kChannels; ++i) {
        const V w = hn::Set(d, panel[i]);
#pragma GCC unroll 8
        for (int64_t v = 0; v < kVecs; ++v) sums[i][v] = hn::MulAdd(w, in[v], sums[i][v]);
      }
    }
    if (HWY_UNLIKELY(narrow)) {
      HWY_ALIGN T part[kChannels * hn::MaxLanes(d)];
#pragma GCC unroll 8
      for (int64_t i = 0; i < kChannels; ++i) hn::Store(sums[i][0], d, part + i * lanes);
      for (int64_t i = 0; i < kChannels; ++i) {
        std::memcpy(out + i * plane, part + i * lanes, static_cast<size_t>(r.width) * sizeof(T));
      }
      continue;
    }
#pragma GCC unroll 8
    for (int64_t i = 0; i < kChannels; ++i) {
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVecs; ++v) hn::StoreU(sums[i][v], d, out + i * plane + x[v]);
    }
  }
}

template <int64_t kChannels, class T>
HWY_INLINE void ProductRows(const DirectProduct<T>& r, int64_t o) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  constexpr int64_t kMost = kChannels == 1 ? kMostVectors : kVectors;
  // Tiles of nearly equal width: 4 vectors are 2 and 2 rather than 3 and 1.
  const int64_t vectors = (r.width + lanes - 1) / lanes;
  int64_t tiles = (vectors + kMost - 1) / kMost;
  for (int64_t first = 0; first < vectors; --tiles) {
    const int64_t count = (vectors - first + tiles - 1) / tiles;
    switch (count) {
      case 1:
        ProductTiles<kChannels, 1>(r, o, first);
        break;
      case 2:
        ProductTiles<kChannels, 2>(r, o, first);
        break;
      case 3:
        ProductTiles<kChannels, 3>(r, o, first);
        break;
      default:
        if constexpr (kMost > 3) {
          if (count == 4) ProductTiles<kChannels, 4>(r, o, first);
          if (count == 5) ProductTiles<kChannels, 5>(r, o, first);
          if (count == 6) ProductTiles<kChannels, 6>(r, o, first);
        }
    }
    first += count;
  }
}

template <class T>
HWY_INLINE void Product(const DirectProduct<T>& r) {
  int64_t o = 0;
  for (; o + kWide <= r.channels; o += kWide) ProductRows<kWide>(r, o);
  if constexpr (kWide == 8) {
    for (; o + 4 <= r.channels; o += 4) ProductRows<4>(r, o);
  }
  for (; o + 2 <= r.channels; o += 2) ProductRows<2>(r, o);
  if (o < r.channels) ProductRows<1>(r, o);
}

// The steps of a tile of kChannels channels.
template <int64_t kChannels>
constexpr int64_t kTileSteps = kChannels == 1   ? 9
                               : kChannels == 2 ? 5
                                                : (kManyRegisters ? 6 : 3);

template <int64_t kChannels, class T>
HWY_INLINE void GradientTile(const DirectGradient<T>& r, int64_t o, const int32_t* step, T* out) {
  constexpr int64_t kSteps = kTileSteps<kChannels>;
  const hn::ScalableTag<T> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[kChannels][kSteps];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kChannels; ++i) {
#pragma GCC unroll 16
    for (int64_t s = 0; s < kSteps; ++s) {
      sums[i][s] = r.accumulate ? hn::LoadU(d, out + (i * kSteps + s) * lanes) : hn::Zero(d);
    }
  }
  const T* grad[kChannels];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kChannels; ++i) {
    grad[i] = r.grad + std::min(o + i, r.channels - 1) * r.grad_plane;
  }
  // The last vector of a row ends at the end of the row. Elements that it shares with the previous
  // vector count as zero in both factors, because the other factor may be infinite.
  const int64_t whole = r.width / lanes * lanes;
  const bool narrow = whole == 0;
  const auto fresh = hn::Not(hn::FirstN(d, static_cast<size_t>(whole + lanes - r.width)));
  const auto inside = hn::FirstN(d, static_cast<size_t>(r.width));
  const int64_t last = r.width - lanes;
  const auto load_last = [&](const T* row) HWY_ATTR {
    return narrow ? hn::MaskedLoad(inside, d, row)
                  : hn::IfThenElseZero(fresh, hn::LoadU(d, row + last));
  };
  const T* input[kSteps];
#pragma GCC unroll 16
  for (int64_t s = 0; s < kSteps; ++s) input[s] = r.input + step[s];
  for (int64_t y = 0; y < r.rows; ++y) {
    for (int64_t x = 0; x < whole; x += lanes) {
      V g[kChannels];
#pragma GCC unroll 8
      for (int64_t i = 0; i < kChannels; ++i) g[i] = hn::LoadU(d, grad[i] + x);
#pragma GCC unroll 16
      for (int64_t s = 0; s < kSteps; ++s) {
        const V b = hn::LoadU(d, input[s] + x);
#pragma GCC unroll 8
        for (int64_t i = 0; i < kChannels; ++i) sums[i][s] = hn::MulAdd(g[i], b, sums[i][s]);
      }
    }
    if (whole < r.width) {
      V g[kChannels];
#pragma GCC unroll 8
      for (int64_t i = 0; i < kChannels; ++i) g[i] = load_last(grad[i]);
#pragma GCC unroll 16
      for (int64_t s = 0; s < kSteps; ++s) {
        const V b = load_last(input[s]);
#pragma GCC unroll 8
        for (int64_t i = 0; i < kChannels; ++i) sums[i][s] = hn::MulAdd(g[i], b, sums[i][s]);
      }
    }
#pragma GCC unroll 8
    for (int64_t i = 0; i < kChannels; ++i) grad[i] += r.grad_pitch;
#pragma GCC unroll 16
    for (int64_t s = 0; s < kSteps; ++s) input[s] += r.input_pitch;
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < kChannels; ++i) {
#pragma GCC unroll 16
    for (int64_t s = 0; s < kSteps; ++s) {
      hn::StoreU(sums[i][s], d, out + (i * kSteps + s) * lanes);
    }
  }
}

template <int64_t kChannels, class T>
HWY_INLINE void GradientTiles(const DirectGradient<T>& r) {
  constexpr int64_t kSteps = kTileSteps<kChannels>;
  const int64_t size = kChannels * kSteps * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  T* out = r.sums;
  for (int64_t o = 0; o < r.channels; o += kChannels) {
    for (int64_t s = 0; s < r.steps; s += kSteps, out += size) {
      GradientTile<kChannels>(r, o, r.step + s, out);
    }
  }
}

template <class T>
HWY_INLINE void Gradient(const DirectGradient<T>& r) {
  if (r.channels == 1) return GradientTiles<1>(r);
  if (r.channels == 2) return GradientTiles<2>(r);
  GradientTiles<4>(r);
}

template <class T>
HWY_INLINE DirectTile TileOf(int64_t channels) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  if (channels == 1) return {1, kTileSteps<1>, lanes};
  if (channels == 2) return {2, kTileSteps<2>, lanes};
  return {4, kTileSteps<4>, lanes};
}

template <class T>
HWY_INLINE void SumLanes(const T* HWY_RESTRICT from, int64_t n, T* HWY_RESTRICT to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; ++i) {
    to[i] = hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, from + i * lanes)));
  }
}

template <class T>
constexpr DirectMicrokernels<T> kDirectMicrokernels = {&Product<T>, &Gradient<T>, &TileOf<T>,
                                                       &SumLanes<T>};

const DirectMicrokernels<float>& FloatDirect() { return kDirectMicrokernels<float>; }
const DirectMicrokernels<double>& DoubleDirect() { return kDirectMicrokernels<double>; }

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE_OF(float, mytorch::cpu, direct_microkernels, FloatDirect)
MYTORCH_EXPORT_TABLE_OF(double, mytorch::cpu, direct_microkernels, DoubleDirect)
