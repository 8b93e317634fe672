// The microkernels of implicit GEMM, whose vectors run along channels: matrix products whose left
// factor is never stored. Its element (i, s) is input[place[i] + step[s]], for a window position i
// and a tap s, or the reverse.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// out[i][l] = sum over s of input[place[i] + step[s]] * panel[s][l], for i in [0, rows) and l in
// [0, width), where `width` is the number of lanes of `vectors` (1 or 2) vectors, and the pitch of
// `panel` and `out`. Sums begin with start[l] (zero if `start` is NULL), or with the contents of
// `out` if `accumulate`. They are added in the order of s; a single vector keeps two partial sums.
template <class T>
struct ImplicitProduct {
  const T* input;
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

template <class T>
struct ImplicitMicrokernels {
  // Of a vector.
  int64_t (*lanes)();
  void (*product)(const ImplicitProduct<T>& product);
  // to[c * to_pitch + r] = from[r * from_pitch + c]
  void (*transpose)(const T* from, int64_t from_pitch, int64_t rows, int64_t cols, T* to,
                    int64_t to_pitch);
  // Copies short rows, for which calling memcpy would take longer than the copy.
  void (*copy_rows)(const T* from, int64_t from_pitch, int64_t rows, int64_t width, T* to,
                    int64_t to_pitch);
  // to[i] += from[i]
  void (*add_to)(T* to, const T* from, int64_t n);
  bool (*all_finite)(const T* x, int64_t n);
};

// Returns the functions of the best instruction set of this CPU; T is float or double.
template <class T>
const ImplicitMicrokernels<T>& implicit_microkernels();

}  // namespace mytorch::cpu
