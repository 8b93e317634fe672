// Registration of kernels: each file of kernels defines register_NAME, which appends its entries.
// The list below declares these functions, and the backend calls them all.
#pragma once

#include <vector>

#include "mytorch/abi.h"

#define MYTORCH_CUDA_FAMILIES(FAMILY) \
  FAMILY(copy)                        \
  FAMILY(fill)                        \
  FAMILY(cat)                         \
  FAMILY(creation)                    \
  FAMILY(pointwise)                   \
  FAMILY(reduce)                      \
  FAMILY(take)                        \
  FAMILY(scatter)                     \
  FAMILY(scatter_add)                 \
  FAMILY(rows)                        \
  FAMILY(nonzero)                     \
  FAMILY(random)                      \
  FAMILY(matrix)                      \
  FAMILY(convolution)                 \
  FAMILY(pooling)                     \
  FAMILY(scan)                        \
  FAMILY(sorting)                     \
  FAMILY(steps)                       \
  FAMILY(softmax)                     \
  FAMILY(layer_norm)                  \
  FAMILY(layer_norm_backward)         \
  FAMILY(batch_norm)                  \
  FAMILY(group_norm)                  \
  FAMILY(nll_loss)                    \
  FAMILY(cross_entropy)

namespace mytorch::cuda {

using KernelEntries = std::vector<mt_kernel_entry>;

#define MYTORCH_CUDA_DECLARE(name) void register_##name(KernelEntries& kernels);
MYTORCH_CUDA_FAMILIES(MYTORCH_CUDA_DECLARE)
#undef MYTORCH_CUDA_DECLARE

}  // namespace mytorch::cuda
