// Short rows into contiguous memory.
#pragma once

#include <cstdint>

namespace mytorch::cpu {

// Gathers `rows` rows of `cols` elements of 1, 2, 4 or 8 bytes. Strides are in bytes: between rows,
// and between the elements of a row.
void gather_rows(const void* from, int64_t row_stride, int64_t col_stride, int64_t rows,
                 int64_t cols, int64_t itemsize, void* to);

}  // namespace mytorch::cpu
