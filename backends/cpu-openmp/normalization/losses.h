// What losses over targets end with: the sums of the chunks, in order, become the result.
#pragma once

#include <cstdint>
#include <string_view>

#include "backends/cpu-openmp/normalization/row_major.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {

// `sums` holds a chunk's loss and weight, one after the other. `out` is the loss of one element,
// which "none" has filled already; `total_weight` (or NULL) becomes the weight of all targets, 0
// for "none".
template <class W, class T>
void reduce_losses(const double* sums, int64_t chunks, std::string_view reduction, T* out,
                   const mt_tensor* total_weight) {
  double sum = 0, weights = 0;
  for (int64_t c = 0; c < chunks; ++c) {
    sum += sums[2 * c];
    weights += sums[2 * c + 1];
  }
  const bool none = reduction == "none";
  if (!none) out[0] = sdk::convert<T>(static_cast<W>(reduction == "mean" ? sum / weights : sum));
  if (total_weight != nullptr) {
    W total = none ? W(0) : static_cast<W>(weights);
    RowMajor<W>(sdk::TensorView(total_weight)).put(0, 1, &total);
  }
}

}  // namespace mytorch::cpu
