// Transforms of many lines of one length at once, each in a lane of the vectors: butterflies of
// points by Stockham's method, which needs no shuffles. For lengths with factors up to 7 whose
// points of all lanes fit into the second-level cache.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cpu-fftw/common/lanes.h"

namespace mytorch::fftw {

template <class T>
class Batch {
 public:
  // Returns the transform of n points, or NULL if another way is better.
  static std::shared_ptr<const Batch> of(int64_t n, bool forward);

  Batch(int64_t n, bool forward);
  // Transforms the points of `x`, and returns where they are: `x` or `y`, which both are lost.
  Point<T>* run(Point<T>* x, Point<T>* y) const;

 private:
  struct Stage {
    int64_t radix, groups, side;    // groups * side * radix = n
    std::vector<Complex<T>> roots;  // powers 1, ... radix - 1 of those of each group
  };
  std::vector<Stage> stages_;
  bool forward_;
};

// Frequencies 0 to m of 2 m real points, from the transform of m complex ones, whose parts are the
// even and the odd points (rows.h). `roots` are exp(-pi i k / m). `to`, which may be `from`, has m
// + 1 points.
template <class T>
void separate_points(const Point<T>* from, const Complex<T>* roots, int64_t m, Point<T>* to);
// The inverse, with the conjugate roots: m points whose inverse transform is the real numbers.
template <class T>
void unite_points(const Point<T>* from, const Complex<T>* roots, int64_t m, Point<T>* to);

}  // namespace mytorch::fftw
