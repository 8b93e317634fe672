// Where kernel files hand in their kernels: a file of kernels defines register_NAME, which
// appends what it has. The list below declares them and is what the backend goes through: what is
// not in it does not compile.
#pragma once

#include <vector>

#include "mytorch/abi.h"

#define MYTORCH_CPU_FAMILIES(FAMILY) \
  FAMILY(pointwise)                  \
  FAMILY(reduce)                     \
  FAMILY(copy)                       \
  FAMILY(fill)                       \
  FAMILY(creation)                   \
  FAMILY(random)                     \
  FAMILY(scan)                       \
  FAMILY(sorting)                    \
  FAMILY(cat)                        \
  FAMILY(scatter)                    \
  FAMILY(gather)                     \
  FAMILY(embedding)                  \
  FAMILY(pooling)                    \
  FAMILY(convolution)                \
  FAMILY(matrix)                     \
  FAMILY(softmax)                    \
  FAMILY(layer_norm)                 \
  FAMILY(batch_norm)                 \
  FAMILY(nll_loss)                   \
  FAMILY(cross_entropy)

namespace mytorch::cpu {

using KernelEntries = std::vector<mt_kernel_entry>;

#define MYTORCH_CPU_DECLARE(name) void register_##name(KernelEntries& kernels);
MYTORCH_CPU_FAMILIES(MYTORCH_CPU_DECLARE)
#undef MYTORCH_CPU_DECLARE

}  // namespace mytorch::cpu
