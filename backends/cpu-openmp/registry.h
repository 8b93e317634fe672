// The files of kernels, each of which defines register_NAME.
#pragma once

#include "mytorch/backend/registry.h"

#define MYTORCH_CPU_FILES(FILE) \
  FILE(pointwise)               \
  FILE(gamma)                   \
  FILE(reduce)                  \
  FILE(copy)                    \
  FILE(fill)                    \
  FILE(creation)                \
  FILE(random)                  \
  FILE(scan)                    \
  FILE(sorting)                 \
  FILE(search)                  \
  FILE(cat)                     \
  FILE(scatter)                 \
  FILE(gather)                  \
  FILE(embedding)               \
  FILE(rotary)                  \
  FILE(steps)                   \
  FILE(pooling)                 \
  FILE(convolution)             \
  FILE(matrix)                  \
  FILE(distances)               \
  FILE(attention)               \
  FILE(softmax)                 \
  FILE(layer_norm)              \
  FILE(batch_norm)              \
  FILE(nll_loss)                \
  FILE(cross_entropy)

namespace mytorch::cpu {

MYTORCH_KERNEL_FILES(MYTORCH_CPU_FILES)

}  // namespace mytorch::cpu
