// The node operations of complex numbers.
#pragma once

#include <cstdint>
#include <string_view>

namespace mytorch::cpu {

// Computes n elements of `to`, which is one of the operands or shares no memory with them. All of
// them lie as in memory, real and imaginary parts in turns; a BOOL value is 0 or 1.
template <class T>
using ComplexLoop = void (*)(const T* const* operands, T* to, int64_t n);

// Vector code for the instruction set in use.
template <class T>
struct ComplexVectorFns {
  struct Row {
    const char* name;
    ComplexLoop<T> loop;
  };
  const Row* rows;
  int num_rows;
};
template <class T>
const ComplexVectorFns<T>& complex_vector_fns();

// The other functions, element by element by the standard library. Returns null for an unknown one.
template <class T>
ComplexLoop<T> find_complex_function(std::string_view name);

}  // namespace mytorch::cpu
