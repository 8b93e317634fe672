// The innermost loops of direct convolutions, for the instruction set at hand.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// How many channels a tile of each kind has; weights are packed, and images rounded up, to these.
inline constexpr int64_t kTileChannels = 8;
inline constexpr int64_t kTileTaps = 3;

// Reads go up to this many elements beyond the last position.
inline constexpr int64_t kTileSlack = 128;

// out[o * pitch + p] = bias[o] + sum over k of weight[k * channels + o] * image[shift[k] + p], for
// p in [0, positions) and o in [0, channels); channels is 1 or kTileChannels. `out` is written up
// to kTileSlack elements further.
void correlate(const float* image, const int64_t* shift, int64_t taps, const float* weight,
               const float* bias, int64_t channels, int64_t positions, float* out, int64_t pitch);
void correlate(const double* image, const int64_t* shift, int64_t taps, const double* weight,
               const double* bias, int64_t channels, int64_t positions, double* out, int64_t pitch);

// sums[o * taps + k] += sum over p of grad[o * pitch + p] * image[shift[k] + p], for o in [0,
// kTileChannels) and k in [0, taps), taps a multiple of kTileTaps. Beyond `positions` both operands
// are read and at least grad is zero.
void accumulate(const float* grad, int64_t pitch, const float* image, const int64_t* shift,
                int64_t taps, int64_t positions, float* sums);
void accumulate(const double* grad, int64_t pitch, const double* image, const int64_t* shift,
                int64_t taps, int64_t positions, double* sums);

}  // namespace mytorch::cpu
