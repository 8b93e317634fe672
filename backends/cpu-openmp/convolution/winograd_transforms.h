// The transforms of Winograd's convolution F(2 x 2, 3 x 3), which are sums and differences along
// rows and columns; vectors run along tiles, or along channels. In each, [k] stands for the 16
// elements of a transformed tile, row-major.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

struct WinogradTransforms {
  // Transforms a row of adjacent tiles of 4 x 4 elements, which overlap by 2. Tile i begins at
  // from[2 * i]; to[k * to_pitch + i] receives element k. Reads and writes up to kWinogradSlack
  // elements beyond the last ones. `rows` is memory for 4 rows of 2 * tiles + kWinogradSlack.
  void (*input)(const float* from, int64_t from_pitch, int64_t tiles, float* to, int64_t to_pitch,
                float* rows);
  // Transforms weights [channel][tap][lane] into to[k * to_pitch + (channel * width + lane)].
  // Element (i, j) of the 3 x 3 taps is tap order[3 * i + j]; `width` is a multiple of a vector.
  void (*weight)(const float* from, const int64_t (&order)[9], int64_t channels, int64_t width,
                 float* to, int64_t to_pitch);
  // Transforms a row of products back: [k * from_pitch + (tile * width + lane)] into two rows of
  // 2 * tiles results [position][lane], plus start[lane]. Returns whether all results are finite.
  bool (*output)(const float* from, int64_t from_pitch, int64_t tiles, int64_t width,
                 const float* start, float* to);
};

inline constexpr int64_t kWinogradSlack = 64;

// Returns the functions of the best instruction set of this CPU.
const WinogradTransforms& winograd_transforms();

}  // namespace mytorch::cpu
