// Deterministic sums of rows by index, without atomics: out[r] = self[r] + the sum of src[p] over
// the positions p with index[p] == r, added in order of p. Positions are sorted by row, and each
// output row is computed by one thread per column.
#pragma once

#include <cstdint>

#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

struct RowSums {
  sdk::TensorView index;
  Strided<1> positions;   // over the index, in row-major order
  int64_t rows;           // of the output
  int64_t skip = -1;      // an index whose positions are skipped
  bool by_count = false;  // divides each row by the number of its positions
  mt_dtype dtype;         // of src, self and out
  const void* src;
  int64_t src_step;  // between positions
  const void* self;  // NULL: zero
  int64_t self_step;
  void* out;
  int64_t out_step;    // between rows
  Strided<3> columns;  // over the columns of src, self and out
};

void sum_rows(mt_ctx& ctx, const RowSums& call, const Faults& faults);

}  // namespace mytorch::cuda
