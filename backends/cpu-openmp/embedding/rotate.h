// Rotation of the pairs of a row by angles, of which the cosines and sines are given.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// Rotates the first 2 * n elements of `row` into `to`, which may be `row`. A `sign` of -1 rotates
// in the opposite direction.
template <class T>
struct Rotations {
  using Fn = void (*)(const T* row, const T* cos, const T* sin, int64_t n, T sign, T* to);
  Fn halves;     // pairs are (row[i], row[n + i])
  Fn neighbors;  // pairs are (row[2 * i], row[2 * i + 1])
};

// Returns the functions of the best instruction set of this CPU; T is float or double.
template <class T>
const Rotations<T>& rotations();

}  // namespace mytorch::cpu
