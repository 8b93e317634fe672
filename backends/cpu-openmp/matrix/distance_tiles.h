// Distances between rows of floats or doubles, and their gradients.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// How the elements of a difference make a distance.
enum class Norm { kCount, kSum, kSquares, kLargest, kPowers };

// The rows that the functions take together.
inline constexpr int64_t kDistanceRows = 4;

template <class T>
struct DistanceTiles {
  // The columns of a panel.
  int64_t (*columns)();
  // Stores the first rows of x2, as many as a panel has columns and at most n, as columns: element
  // k of row j at panel[k * columns + j], and 0 beyond.
  void (*pack)(const T* x2, int64_t n, int64_t size, T* panel);
  // Stores the distances of `rows` <= kDistanceRows rows of x1 from the n rows of a panel, at
  // to[i * pitch + j]. Returns whether there may be one below `low`, infinite or NaN, of squares or
  // powers.
  bool (*measure)(const T* x1, int64_t rows, const T* panel, int64_t n, int64_t size, Norm norm,
                  T p, T low, T* to, int64_t pitch);
  // Adds to `to`, of `size` elements for each row of x1, the gradient for `rows` <= kDistanceRows
  // rows, whose distances[i * pitch + j] from the n rows of x2 have the gradients g[i * pitch + j].
  // Those of kSquares are divided by the distances, those of kLargest by how many elements attain
  // them.
  void (*add_gradient)(const T* x1, int64_t rows, const T* x2, int64_t n, int64_t size, Norm norm,
                       T p, const T* g, const T* distances, T* to, int64_t pitch);
  // Returns how many elements of the difference of two rows have this magnitude.
  T (*attained)(const T* x1, const T* x2, int64_t size, T magnitude);
  // Stores the difference of a row from `center`, and returns the sum of its squares.
  T (*centered)(const T* row, const T* center, int64_t size, T* to);
  // Makes distances of products: of to[j], which is -2 times the product of a row with row j. `own`
  // and others[j] are the sums of the squares of the rows. Stores NaN instead where the sum cancels
  // so far that it is not exact, or is outside of [low^2, the largest number], and returns whether
  // there is such a place.
  bool (*finish)(T own, const T* others, int64_t n, T low, T* to);
  // Returns the Euclidean distance of two rows.
  T (*distance)(const T* x1, const T* x2, int64_t size);
};

// Returns the functions of the best instruction set of this CPU; T is float or double.
template <class T>
const DistanceTiles<T>& distance_tiles();

}  // namespace mytorch::cpu
