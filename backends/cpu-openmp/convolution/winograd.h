// Convolution with 3 x 3 adjacent taps by Winograd's F(2 x 2, 3 x 3) (Lavin and Gray, 2016): tiles
// of 4 x 4 elements of the source and the weights are transformed, so that the 2 x 2 results of a
// tile need 16 products for each pair of channels, not 36. The products of one of the 16 elements
// of all tiles are a matrix product.
//
// As in other libraries' convolutions of this kind, errors are relative to the largest element of a
// window times the largest weight, not to the sum of the terms' magnitudes: an element beside one
// that is 1e8 times as large may be lost even if the weight of the latter is 0. For ordinary data,
// they are about twice those of the sum. MYTORCH_CPU_WINOGRAD=0 does without the method.
#pragma once

#include <cstdint>

#include "backends/cpu-openmp/convolution/windows.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {

// target = windows of the source times the weight, plus the bias. Channels are those of a group;
// the weight's taps are contiguous.
struct WinogradProblem {
  const Windows& windows;
  int64_t batch, groups, in, out;
  const float* source;
  const float* weight;
  int64_t group_stride, out_stride, in_stride;  // of the weight
  const float* bias;
  float* target;
};

// Whether the method is allowed.
bool allows_winograd();

// Returns false if a result is not finite: sums and differences of infinities and of the largest
// numbers give NaN where the convolution has numbers. The target is then to be computed again. Call
// it only if sdk::gains_by_tiles.
bool winograd(mt_ctx& ctx, const WinogradProblem& problem);

}  // namespace mytorch::cpu
