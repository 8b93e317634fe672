// The microkernels of direct convolution, whose vectors run along rows of the input. They serve
// convolutions with few channels or taps, for which implicit GEMM (implicit_microkernel.h) would
// spend too much time on transposing its results. The stride along rows is 1; across rows it is
// arbitrary.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// The most output channels in a panel of weights.
inline constexpr int64_t kDirectChannels = 8;
// Reads extend up to this many elements beyond the end of a row.
inline constexpr int64_t kDirectSlack = 16;

// out[o * out_plane + y * out_pitch + x] = start[o] + sum over s of
//     panel[s * panel_pitch + o] * input[y * input_pitch + step[s] + x],
// for o in [0, channels), at most kDirectChannels, y in [0, rows) and x in [0, width).
template <class T>
struct DirectProduct {
  const T* input;
  int64_t input_pitch;
  const int32_t* step;
  int64_t steps;
  const T* panel;
  int64_t panel_pitch;
  const T* start;
  int64_t channels, rows, width;
  T* out;
  int64_t out_plane, out_pitch;
};

// sum over y and x of grad[o * grad_plane + y * grad_pitch + x] *
//     input[y * input_pitch + step[s] + x]
// for each o in [0, channels) and s in [0, steps). Each sum is kept as a vector whose lanes the
// caller adds at the end. `sums` is an array [o tile][s tile][o][s][lane] of tiles of size tile(),
// and `accumulate` adds to its contents. `steps` is a multiple of the tile's steps.
template <class T>
struct DirectGradient {
  const T* input;
  int64_t input_pitch;
  const int32_t* step;
  int64_t steps;
  const T* grad;
  int64_t grad_plane, grad_pitch;
  int64_t channels, rows, width;
  bool accumulate;
  T* sums;
};

struct DirectTile {
  int64_t channels, steps, lanes;
};

template <class T>
struct DirectMicrokernels {
  void (*product)(const DirectProduct<T>& product);
  void (*gradient)(const DirectGradient<T>& gradient);
  // The tile of gradient() for `channels` channels.
  DirectTile (*tile)(int64_t channels);
  // to[i] = sum of from[i * lanes] ... from[i * lanes + lanes - 1]
  void (*sum_lanes)(const T* from, int64_t n, T* to);
};

// Returns the functions of the best instruction set of this CPU; T is float or double.
template <class T>
const DirectMicrokernels<T>& direct_microkernels();

}  // namespace mytorch::cpu
