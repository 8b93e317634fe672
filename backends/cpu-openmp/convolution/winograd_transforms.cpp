#include "backends/cpu-openmp/convolution/winograd_transforms.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/convolution/winograd_transforms.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vector = hn::VFromD<Floats>;

HWY_INLINE int64_t LanesOfFloats() { return static_cast<int64_t>(hn::Lanes(Floats())); }

// Multiplies by the 4 x 4 matrix of inputs.
HWY_INLINE void InputColumn(const Vector (&x)[4], Vector (&y)[4]) {
  y[0] = hn::Sub(x[0], x[2]);
  y[1] = hn::Add(x[1], x[2]);
  y[2] = hn::Sub(x[2], x[1]);
  y[3] = hn::Sub(x[1], x[3]);
}
// Multiplies by the 4 x 3 matrix of weights.
HWY_INLINE void WeightColumn(const Vector (&x)[3], Vector (&y)[4]) {
  const Floats d;
  const Vector half = hn::Set(d, 0.5f);
  const Vector ends = hn::Mul(hn::Add(x[0], x[2]), half), middle = hn::Mul(x[1], half);
  y[0] = x[0];
  y[1] = hn::Add(ends, middle);
  y[2] = hn::Sub(ends, middle);
  y[3] = x[2];
}
// Multiplies by the 2 x 4 matrix of results.
HWY_INLINE void OutputColumn(const Vector (&x)[4], Vector (&y)[2]) {
  y[0] = hn::Add(hn::Add(x[0], x[1]), x[2]);
  y[1] = hn::Sub(hn::Sub(x[1], x[2]), x[3]);
}

HWY_INLINE void Input(const float* from, int64_t from_pitch, int64_t tiles, float* to,
                      int64_t to_pitch, float* rows) {
  const Floats d;
  const int64_t lanes = LanesOfFloats();
  const int64_t pitch = 2 * tiles + kWinogradSlack;
  for (int64_t i = 0; i < 2 * tiles + 2; i += lanes) {
    Vector x[4], y[4];
#pragma GCC unroll 4
    for (int64_t r = 0; r < 4; ++r) x[r] = hn::LoadU(d, from + r * from_pitch + i);
    InputColumn(x, y);
#pragma GCC unroll 4
    for (int64_t r = 0; r < 4; ++r) hn::StoreU(y[r], d, rows + r * pitch + i);
  }
  for (int64_t i = 0; i < tiles; i += lanes) {
#pragma GCC unroll 4
    for (int64_t r = 0; r < 4; ++r) {
      const float* const row = rows + r * pitch + 2 * i;
      Vector x[4], y[4];
      hn::LoadInterleaved2(d, row, x[0], x[1]);
      hn::LoadInterleaved2(d, row + 2, x[2], x[3]);
      InputColumn(x, y);
#pragma GCC unroll 4
      for (int64_t k = 0; k < 4; ++k) hn::StoreU(y[k], d, to + (4 * r + k) * to_pitch + i);
    }
  }
}

HWY_INLINE void Weight(const float* from, const int64_t (&order)[9], int64_t channels,
                       int64_t width, float* to, int64_t to_pitch) {
  const Floats d;
  for (int64_t c = 0; c < channels; ++c, from += 9 * width) {
    for (int64_t lane = 0; lane < width; lane += LanesOfFloats()) {
      Vector rows[4][3];  // transformed along columns
#pragma GCC unroll 3
      for (int64_t j = 0; j < 3; ++j) {
        Vector x[3], y[4];
#pragma GCC unroll 3
        for (int64_t i = 0; i < 3; ++i) {
          x[i] = hn::LoadU(d, from + order[3 * i + j] * width + lane);
        }
        WeightColumn(x, y);
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; ++i) rows[i][j] = y[i];
      }
#pragma GCC unroll 4
      for (int64_t i = 0; i < 4; ++i) {
        Vector y[4];
        WeightColumn(rows[i], y);
#pragma GCC unroll 4
        for (int64_t k = 0; k < 4; ++k) {
          hn::StoreU(y[k], d, to + (4 * i + k) * to_pitch + c * width + lane);
        }
      }
    }
  }
}

HWY_INLINE bool Output(const float* from, int64_t from_pitch, int64_t tiles, int64_t width,
                       const float* start, float* to) {
  const Floats d;
  const int64_t row = 2 * tiles * width;
  Vector differences = hn::Zero(d);  // NaN once a result is not finite
  for (int64_t tile = 0; tile < tiles; ++tile) {
    for (int64_t lane = 0; lane < width; lane += LanesOfFloats()) {
      const float* const at = from + tile * width + lane;
      Vector rows[2][4];  // transformed along columns
#pragma GCC unroll 4
      for (int64_t j = 0; j < 4; ++j) {
        Vector x[4], y[2];
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; ++i) x[i] = hn::LoadU(d, at + (4 * i + j) * from_pitch);
        OutputColumn(x, y);
        rows[0][j] = y[0];
        rows[1][j] = y[1];
      }
      const Vector bias = hn::LoadU(d, start + lane);
#pragma GCC unroll 2
      for (int64_t i = 0; i < 2; ++i) {
        Vector y[2];
        OutputColumn(rows[i], y);
#pragma GCC unroll 2
        for (int64_t j = 0; j < 2; ++j) {
          const Vector result = hn::Add(y[j], bias);
          differences = hn::Add(differences, hn::Sub(result, result));
          hn::StoreU(result, d, to + i * row + (2 * tile + j) * width + lane);
        }
      }
    }
  }
  return hn::AllTrue(d, hn::Eq(differences, hn::Zero(d)));
}

const WinogradTransforms& TransformsOfTarget() {
  static constexpr WinogradTransforms kTransforms = {&Input, &Weight, &Output};
  return kTransforms;
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE(mytorch::cpu, winograd_transforms, TransformsOfTarget)
