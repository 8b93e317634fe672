// The innermost loops of convolutions whose vectors run along rows of the image: for few channels,
// and for so few taps that bringing results of the other way (gathered.h) into place would show.
// Windows are 1 apart along rows, anything along columns.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// Weights come in panels of so many channels.
inline constexpr int64_t kRowChannels = 8;
// Reads go up to this many elements beyond the end of a row.
inline constexpr int64_t kRowSlack = 16;

// out[o * out_plane + y * out_pitch + x] = start[o] + sum over s of
//     panel[s * panel_pitch + o] * image[y * image_pitch + step[s] + x],
// for o in [0, channels), at most kRowChannels, y in [0, rows) and x in [0, width).
template <class T>
struct RowsProduct {
  const T* image;
  int64_t image_pitch;
  const int32_t* step;
  int64_t steps;
  const T* panel;
  int64_t panel_pitch;
  const T* start;
  int64_t channels, rows, width;
  T* out;
  int64_t out_plane, out_pitch;
};
void rows_product(const RowsProduct<float>& product);
void rows_product(const RowsProduct<double>& product);

// sum over y and x of grad[o * grad_plane + y * grad_pitch + x] *
//     image[y * image_pitch + step[s] + x]
// for each o in [0, channels) and s in [0, steps), in tiles (o, s) of a size that depends on the
// number of channels. Each sum is a vector, whose lanes are to be summed at the end: `sums` holds,
// for each o tile, s tile, and o and s in it, one of row_tile().lanes elements, which with
// `accumulate` are added to. Steps come in whole tiles.
template <class T>
struct RowsGradient {
  const T* image;
  int64_t image_pitch;
  const int32_t* step;
  int64_t steps;
  const T* grad;
  int64_t grad_plane, grad_pitch;
  int64_t channels, rows, width;
  bool accumulate;
  T* sums;
};
void rows_gradient(const RowsGradient<float>& gradient);
void rows_gradient(const RowsGradient<double>& gradient);

struct RowTile {
  int64_t channels, steps, lanes;
};
RowTile row_tile(float, int64_t channels);
RowTile row_tile(double, int64_t channels);

// to[i] = sum of from[i * lanes] ... from[i * lanes + lanes - 1]
void sum_lanes(const float* from, int64_t n, float* to);
void sum_lanes(const double* from, int64_t n, double* to);

}  // namespace mytorch::cpu
