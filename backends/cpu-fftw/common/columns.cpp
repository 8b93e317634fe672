#include "backends/cpu-fftw/common/columns.h"

#include <cstring>

#include "backends/cpu-fftw/common/vectors.h"

namespace mytorch::fftw {
namespace {

constexpr int64_t kSide = 4;
typedef int64_t Four __attribute__((vector_size(32)));  // complex numbers

// A block of kSide rows and columns.
[[gnu::always_inline]] inline void turn_block(const Complex<float>* from, int64_t from_step,
                                              Complex<float>* to, int64_t to_step) {
  Four a, b, c, d;
  std::memcpy(&a, from, sizeof(a));
  std::memcpy(&b, from + from_step, sizeof(b));
  std::memcpy(&c, from + 2 * from_step, sizeof(c));
  std::memcpy(&d, from + 3 * from_step, sizeof(d));
  const Four even_ab = __builtin_shufflevector(a, b, 0, 4, 2, 6);
  const Four odd_ab = __builtin_shufflevector(a, b, 1, 5, 3, 7);
  const Four even_cd = __builtin_shufflevector(c, d, 0, 4, 2, 6);
  const Four odd_cd = __builtin_shufflevector(c, d, 1, 5, 3, 7);
  a = __builtin_shufflevector(even_ab, even_cd, 0, 1, 4, 5);
  b = __builtin_shufflevector(odd_ab, odd_cd, 0, 1, 4, 5);
  c = __builtin_shufflevector(even_ab, even_cd, 2, 3, 6, 7);
  d = __builtin_shufflevector(odd_ab, odd_cd, 2, 3, 6, 7);
  std::memcpy(static_cast<void*>(to), &a, sizeof(a));
  std::memcpy(static_cast<void*>(to + to_step), &b, sizeof(b));
  std::memcpy(static_cast<void*>(to + 2 * to_step), &c, sizeof(c));
  std::memcpy(static_cast<void*>(to + 3 * to_step), &d, sizeof(d));
}

}  // namespace

MYTORCH_FFTW_VECTORS void turn_tile(const Complex<float>* from, int64_t from_step, int64_t rows,
                                    int64_t columns, Complex<float>* to, int64_t to_step) {
  const int64_t whole_rows = rows / kSide * kSide, whole_columns = columns / kSide * kSide;
  for (int64_t c = 0; c < whole_columns; c += kSide) {
    for (int64_t r = 0; r < whole_rows; r += kSide) {
      turn_block(from + r * from_step + c, from_step, to + c * to_step + r, to_step);
    }
  }
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r) {
      to[c * to_step + r] = from[r * from_step + c];
    }
  }
}

}  // namespace mytorch::fftw
