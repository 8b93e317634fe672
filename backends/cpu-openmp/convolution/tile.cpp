#include "backends/cpu-openmp/convolution/tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/convolution/tile.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch {
namespace cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// With 32 registers a tile of 8 x 3 vectors holds 24 sums, which hides the latency of two adders;
// with 16 registers it is two tiles of 4 x 3.
constexpr int64_t kWide = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM ? 8 : 4;
constexpr int64_t kVectors = 3;

// Loops over a tile are unrolled, or its sums would not be in registers.

template <int64_t kChannels, int64_t kVecs, class T>
HWY_INLINE void CorrelateTile(const T* HWY_RESTRICT image, const int64_t* HWY_RESTRICT shift,
                              int64_t taps, const T* HWY_RESTRICT weight, int64_t weight_pitch,
                              const T* HWY_RESTRICT bias, T* HWY_RESTRICT out, int64_t pitch) {
  const hn::ScalableTag<T> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[kChannels][kVecs];
#pragma GCC unroll 8
  for (int64_t o = 0; o < kChannels; ++o) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVecs; ++v) {
      sums[o][v] = bias == nullptr ? hn::Zero(d) : hn::Set(d, bias[o]);
    }
  }
  for (int64_t k = 0; k < taps; ++k) {
    const T* x = image + shift[k];
    V in[kVecs];
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVecs; ++v) in[v] = hn::LoadU(d, x + v * lanes);
#pragma GCC unroll 8
    for (int64_t o = 0; o < kChannels; ++o) {
      const V w = hn::Set(d, weight[k * weight_pitch + o]);
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVecs; ++v) sums[o][v] = hn::MulAdd(w, in[v], sums[o][v]);
    }
  }
#pragma GCC unroll 8
  for (int64_t o = 0; o < kChannels; ++o) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVecs; ++v) hn::StoreU(sums[o][v], d, out + o * pitch + v * lanes);
  }
}

template <class T>
HWY_INLINE void Correlate(const T* image, const int64_t* shift, int64_t taps, const T* weight,
                          const T* bias, int64_t channels, int64_t positions, T* out,
                          int64_t pitch) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  if (channels == 1) {
    constexpr int64_t kMany = 6;
    for (int64_t p = 0; p < positions; p += kMany * lanes) {
      CorrelateTile<1, kMany>(image + p, shift, taps, weight, 1, bias, out + p, pitch);
    }
    return;
  }
  for (int64_t p = 0; p < positions; p += kVectors * lanes) {
    for (int64_t o = 0; o < kTileChannels; o += kWide) {
      CorrelateTile<kWide, kVectors>(image + p, shift, taps, weight + o, kTileChannels,
                                     bias == nullptr ? nullptr : bias + o, out + o * pitch + p,
                                     pitch);
    }
  }
}

template <class T>
HWY_INLINE void Accumulate(const T* HWY_RESTRICT grad, int64_t pitch, const T* HWY_RESTRICT image,
                           const int64_t* HWY_RESTRICT shift, int64_t taps, int64_t positions,
                           T* HWY_RESTRICT sums) {
  const hn::ScalableTag<T> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t k = 0; k < taps; k += kTileTaps) {
    for (int64_t o = 0; o < kTileChannels; o += kWide) {
      V acc[kWide][kTileTaps];
#pragma GCC unroll 8
      for (int64_t i = 0; i < kWide; ++i) {
#pragma GCC unroll 8
        for (int64_t j = 0; j < kTileTaps; ++j) acc[i][j] = hn::Zero(d);
      }
      const T* x0 = image + shift[k];
      const T* x1 = image + shift[k + 1];
      const T* x2 = image + shift[k + 2];
      const T* g = grad + o * pitch;
      for (int64_t p = 0; p < positions; p += lanes) {
        const V a = hn::LoadU(d, x0 + p);
        const V b = hn::LoadU(d, x1 + p);
        const V c = hn::LoadU(d, x2 + p);
#pragma GCC unroll 8
        for (int64_t i = 0; i < kWide; ++i) {
          const V s = hn::LoadU(d, g + i * pitch + p);
          acc[i][0] = hn::MulAdd(s, a, acc[i][0]);
          acc[i][1] = hn::MulAdd(s, b, acc[i][1]);
          acc[i][2] = hn::MulAdd(s, c, acc[i][2]);
        }
      }
#pragma GCC unroll 8
      for (int64_t i = 0; i < kWide; ++i) {
#pragma GCC unroll 8
        for (int64_t j = 0; j < kTileTaps; ++j) {
          sums[(o + i) * taps + k + j] += hn::GetLane(hn::SumOfLanes(d, acc[i][j]));
        }
      }
    }
  }
}

void CorrelateFloat(const float* image, const int64_t* shift, int64_t taps, const float* weight,
                    const float* bias, int64_t channels, int64_t positions, float* out,
                    int64_t pitch) {
  Correlate(image, shift, taps, weight, bias, channels, positions, out, pitch);
}
void CorrelateDouble(const double* image, const int64_t* shift, int64_t taps, const double* weight,
                     const double* bias, int64_t channels, int64_t positions, double* out,
                     int64_t pitch) {
  Correlate(image, shift, taps, weight, bias, channels, positions, out, pitch);
}
void AccumulateFloat(const float* grad, int64_t pitch, const float* image, const int64_t* shift,
                     int64_t taps, int64_t positions, float* sums) {
  Accumulate(grad, pitch, image, shift, taps, positions, sums);
}
void AccumulateDouble(const double* grad, int64_t pitch, const double* image, const int64_t* shift,
                      int64_t taps, int64_t positions, double* sums) {
  Accumulate(grad, pitch, image, shift, taps, positions, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace mytorch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu {

HWY_EXPORT(CorrelateFloat);
HWY_EXPORT(CorrelateDouble);
HWY_EXPORT(AccumulateFloat);
HWY_EXPORT(AccumulateDouble);

void correlate(const float* image, const int64_t* shift, int64_t taps, const float* weight,
               const float* bias, int64_t channels, int64_t positions, float* out, int64_t pitch) {
  HWY_DYNAMIC_DISPATCH(CorrelateFloat)
  (image, shift, taps, weight, bias, channels, positions, out, pitch);
}
void correlate(const double* image, const int64_t* shift, int64_t taps, const double* weight,
               const double* bias, int64_t channels, int64_t positions, double* out,
               int64_t pitch) {
  HWY_DYNAMIC_DISPATCH(CorrelateDouble)
  (image, shift, taps, weight, bias, channels, positions, out, pitch);
}
void accumulate(const float* grad, int64_t pitch, const float* image, const int64_t* shift,
                int64_t taps, int64_t positions, float* sums) {
  HWY_DYNAMIC_DISPATCH(AccumulateFloat)(grad, pitch, image, shift, taps, positions, sums);
}
void accumulate(const double* grad, int64_t pitch, const double* image, const int64_t* shift,
                int64_t taps, int64_t positions, double* sums) {
  HWY_DYNAMIC_DISPATCH(AccumulateDouble)(grad, pitch, image, shift, taps, positions, sums);
}

}  // namespace mytorch::cpu
#endif  // HWY_ONCE
