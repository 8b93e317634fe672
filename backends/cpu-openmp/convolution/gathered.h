// The innermost loops of convolutions as matrix products whose left factor is never made: its
// element (i, s) is image[place[i] + step[s]], for a window position and a tap, or the reverse.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// Columns of the right factor are worked on in panels of one or two vectors.
int64_t vector_lanes(float);
int64_t vector_lanes(double);

// out[i][l] = sum over s of image[place[i] + step[s]] * panel[s][l], for i in [0, rows) and l in
// [0, width), `width` the lanes of `vectors` vectors and the pitch of `panel` and `out`. Sums begin
// with start[l], zeros where it is NULL; with `accumulate`, with what is in `out`. They are in the
// order of s, or with one vector, in two halves.
template <class T>
struct Gathered {
  const T* image;
  const int32_t* place;
  int64_t rows;
  const int32_t* step;
  int64_t steps;
  const T* panel;
  int64_t vectors;
  const T* start;
  bool accumulate;
  T* out;
};
void gathered_product(const Gathered<float>& product);
void gathered_product(const Gathered<double>& product);

// to[c * to_pitch + r] = from[r * from_pitch + c]
void transpose(const float* from, int64_t from_pitch, int64_t rows, int64_t cols, float* to,
               int64_t to_pitch);
void transpose(const double* from, int64_t from_pitch, int64_t rows, int64_t cols, double* to,
               int64_t to_pitch);

// Copies short rows, for which a call of memcpy each would take longer than the copy.
void copy_rows(const float* from, int64_t from_pitch, int64_t rows, int64_t width, float* to,
               int64_t to_pitch);
void copy_rows(const double* from, int64_t from_pitch, int64_t rows, int64_t width, double* to,
               int64_t to_pitch);

// to[i] += from[i]
void add_to(float* to, const float* from, int64_t n);
void add_to(double* to, const double* from, int64_t n);

bool all_finite(const float* x, int64_t n);
bool all_finite(const double* x, int64_t n);

}  // namespace mytorch::cpu
