// The final step of losses over targets: adds the sums of chunks in order.
#pragma once

#include <cstdint>
#include <string_view>

#include "backends/cpu-openmp/common/row_major.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {

// `sums` has the loss and the weight of each chunk. Writes the loss to `out`, unless `reduction` is
// "none", for which `out` is already complete. Writes the total weight of the targets, 0 for
// "none", to `total_weight`, unless that is NULL.
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
