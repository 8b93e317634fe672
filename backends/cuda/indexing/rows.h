// Sums of rows by index: out[r] = self[r] + the sum of src[p] over the positions p with index[p] =
// r, added in order of p, without atomics: positions are sorted by row, and each row has an owner.
#pragma once

#include <cstdint>

#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/runtime/faults.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {

struct RowSums {
  sdk::TensorView index;
  Strided<1> positions;   // the index in row-major order
  int64_t rows;           // of the output
  int64_t skip = -1;      // an index that gives nothing
  bool by_count = false;  // each row is divided by how many make it
  mt_dtype dtype;         // of the three below
  const void* src;
  int64_t src_step;  // between positions
  const void* self;  // NULL: zero
  int64_t self_step;
  void* out;
  int64_t out_step;    // between rows
  Strided<3> columns;  // src, self, out
};

void sum_rows(mt_ctx& ctx, const RowSums& call, const Faults& faults);

}  // namespace mytorch::cuda
