// Preparation of cuDNN's operands, and rows that see no key.
#pragma once

#include <cstdint>

#include "backends/cuda/attention/cudnn_graph.h"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

// Writes `mask` (4 dimensions, the last broadcast to `keys`) as numbers that are added to scores: a
// bool mask gives 0 or -infinity. `to` has the layout, and `dtype` is a 16-bit float.
void write_additive_mask(mt_ctx& ctx, const sdk::TensorView& mask, mt_dtype dtype,
                         const Layout4& layout, void* to);

// Writes the logarithms, 0 in place of -infinity, so that the weights of an empty row are
// exp(-infinity - 0) = 0.
void write_finite_logsumexp(mt_ctx& ctx, const float* logsumexp, int64_t n, float* to);

// Sets the output of each row whose logarithm is -infinity to zero.
void clear_empty_rows(mt_ctx& ctx, const float* logsumexp, const Layout4& layout, void* output);

}  // namespace mytorch::cuda
