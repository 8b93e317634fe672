// Gathers short rows into contiguous memory.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// Copies `rows` rows of `cols` elements of 1, 2, 4 or 8 bytes to `to`, one row after another.
// Strides between rows, and between the elements of a row, are in bytes.
void gather_rows(const void* from, int64_t row_stride, int64_t col_stride, int64_t rows,
                 int64_t cols, int64_t itemsize, void* to);

}  // namespace mytorch::cpu
