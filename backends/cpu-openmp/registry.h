// The families of kernels: each file of kernels defines the register_NAME of its family.
#pragma once

#include "mytorch/backend/registry.h"

#define MYTORCH_CPU_FAMILIES(FAMILY) \
  FAMILY(pointwise)                  \
  FAMILY(gamma)                      \
  FAMILY(reduce)                     \
  FAMILY(copy)                       \
  FAMILY(fill)                       \
  FAMILY(creation)                   \
  FAMILY(random)                     \
  FAMILY(scan)                       \
  FAMILY(sorting)                    \
  FAMILY(search)                     \
  FAMILY(cat)                        \
  FAMILY(scatter)                    \
  FAMILY(gather)                     \
  FAMILY(embedding)                  \
  FAMILY(rotary)                     \
  FAMILY(steps)                      \
  FAMILY(pooling)                    \
  FAMILY(convolution)                \
  FAMILY(matrix)                     \
  FAMILY(distances)                  \
  FAMILY(attention)                  \
  FAMILY(softmax)                    \
  FAMILY(layer_norm)                 \
  FAMILY(batch_norm)                 \
  FAMILY(nll_loss)                   \
  FAMILY(cross_entropy)

namespace mytorch::cpu {

MYTORCH_KERNEL_FAMILIES(MYTORCH_CPU_FAMILIES)

}  // namespace mytorch::cpu
