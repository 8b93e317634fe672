// Folds: the vector code of reductions. A fold has one state per output; states are stored in up to
// three arrays, one for each component.
#pragma once

#include <cstdint>

#include "backends/cpu-openmp/pointwise/programs.h"
#include "mytorch/abi.h"

namespace mytorch::cpu {

inline constexpr int kMaxComponents = 3;
// The maximum number of states folded together.
inline constexpr int64_t kMaxStates = 4096;

struct States {
  void* component[kMaxComponents];
};

struct FoldFns {
  int components;
  mt_dtype types[kMaxComponents];
  mt_dtype input;  // the type of the folded values
  void (*reset)(const States& states, int64_t n);
  // Folds n contiguous values into state j. `first` is the index of the first one among the reduced
  // elements.
  void (*along)(const States& states, int64_t j, const void* x, int64_t n, int64_t first);
  // Folds rows of n <= kMaxStates contiguous values, `stride` bytes apart: element j into state j.
  void (*across)(const States& states, const void* x, int64_t stride, int64_t rows, int64_t n,
                 int64_t first);
  // Merges the states `from`, of later elements, into `into`.
  void (*merge)(const States& into, const States& from, int64_t n);
  // Does what reset() and along() do, for the states from j on and `rows` rows of n contiguous
  // values, `stride` bytes apart. NULL if that is no faster than row by row.
  void (*each)(const States& states, int64_t j, const void* x, int64_t stride, int64_t rows,
               int64_t n);
  // Does what reset() and along() do, for states j and j + 1 and the even and the odd ones of 2 n
  // contiguous values. NULL if there is no code for that.
  void (*pairs)(const States& states, int64_t j, const void* x, int64_t n) = nullptr;
};

// Returns the fold of values of `compute_type`, or NULL if the fold does not support the type. Sums
// of float32 are accumulated in double, those of integers in int64. argmax of 4-byte values counts
// in int32.
const FoldFns* find_fold(Fold fold, ComputeType compute_type);

// The tables of each file, in the order that find_fold expects.
const FoldFns* sum_folds();     // sum then prod: float32, float64, int64
const FoldFns* best_folds();    // max, min, argmax, argmin: each float32, float64, int32, int64
const FoldFns* logic_folds();   // all, any
const FoldFns* moment_folds();  // welford, logsumexp: each float32, float64

}  // namespace mytorch::cpu
