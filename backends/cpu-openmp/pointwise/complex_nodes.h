// The node operations of complex tiles.
#pragma once

#include <cstdint>
#include <string_view>

namespace mytorch::cpu {

// The elements of a tile. A BOOL value is 0 or 1 in `re`. Loops may compute elements beyond the
// last one, up to the end of the tile.
inline constexpr int64_t kComplexTile = 256;

template <class T>
struct ComplexTile {
  T* re;
  T* im;
};

// Computes the first n elements of `to`, which is none of the operands.
template <class T>
using ComplexLoop = void (*)(const ComplexTile<T>* operands, ComplexTile<T> to, int64_t n);

// Vector code for the instruction set in use.
template <class T>
struct ComplexVectorFns {
  struct Row {
    const char* name;
    ComplexLoop<T> loop;
  };
  const Row* rows;
  int num_rows;
  // Between n complex elements in memory and a tile.
  void (*load)(const T* from, ComplexTile<T> to, int64_t n);
  void (*store)(ComplexTile<T> from, T* to, int64_t n);
};
template <class T>
const ComplexVectorFns<T>& complex_vector_fns();

// The other functions, element by element by the standard library. Returns null for an unknown one.
template <class T>
ComplexLoop<T> find_complex_function(std::string_view name);

}  // namespace mytorch::cpu
