// Folds: the vector kernels of reductions. A fold keeps one state per output; states lie in up to
// three arrays, one for each component.
#pragma once

#include <cstdint>

#include "backends/cpu-openmp/pointwise/programs.h"
#include "mytorch/abi.h"

namespace mytorch::cpu {

inline constexpr int kMaxComponents = 3;
// States that are folded side by side.
inline constexpr int64_t kMaxStates = 4096;

struct States {
  void* component[kMaxComponents];
};

struct FoldFns {
  int components;
  mt_dtype types[kMaxComponents];
  mt_dtype input;  // what is folded
  void (*reset)(const States& states, int64_t n);
  // Folds n neighbours into state j. `first` is the index of the first among all that is reduced.
  void (*along)(const States& states, int64_t j, const void* x, int64_t n, int64_t first);
  // Folds rows of n <= kMaxStates neighbours, `stride` bytes apart, element j into state j.
  void (*across)(const States& states, const void* x, int64_t stride, int64_t rows, int64_t n,
                 int64_t first);
  // Joins the states of what comes after.
  void (*merge)(const States& into, const States& from, int64_t n);
  // reset() and along() for `rows` rows of n neighbours, `stride` bytes apart, and as many states
  // from j on; NULL: no faster than one by one.
  void (*each)(const States& states, int64_t j, const void* x, int64_t stride, int64_t rows,
               int64_t n);
};

// The fold of values computed in `lane`, on this CPU; NULL where it has no meaning. Sums of float32
// are kept in double, and integers' in int64. argmax of 4-byte values counts in int32.
const FoldFns* find_fold(Fold fold, Lane lane);

// By file; `lane` and the order of the tables are find_fold's.
const FoldFns* sum_folds();     // sum then prod: float32, float64, int64
const FoldFns* best_folds();    // max, min, argmax, argmin: each float32, float64, int32, int64
const FoldFns* logic_folds();   // all, any
const FoldFns* moment_folds();  // welford, logsumexp: each float32, float64

}  // namespace mytorch::cpu
