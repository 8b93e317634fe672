// The families of kernels: each file of kernels defines the register_NAME of its family.
#pragma once

#include "mytorch/backend/registry.h"

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
  FAMILY(total_norm)                  \
  FAMILY(softmax)                     \
  FAMILY(layer_norm)                  \
  FAMILY(layer_norm_backward)         \
  FAMILY(batch_norm)                  \
  FAMILY(group_norm)                  \
  FAMILY(nll_loss)                    \
  FAMILY(cross_entropy)               \
  FAMILY(linear_cross_entropy)        \
  FAMILY(rotary)                      \
  FAMILY(attention_sm90)              \
  FAMILY(attention_backward_sm90)     \
  FAMILY(attention_decode)            \
  FAMILY(attention_tiles)             \
  FAMILY(cudnn_attention)             \
  FAMILY(cholesky)                    \
  FAMILY(lu)                          \
  FAMILY(solve)                       \
  FAMILY(qr)                          \
  FAMILY(eigenvalues)                 \
  FAMILY(singular_values)             \
  FAMILY(cusolver_factors)            \
  FAMILY(cusolver_spectra)            \
  FAMILY(cusolver_complex)            \
  FAMILY(fourier)

namespace mytorch::cuda {

MYTORCH_KERNEL_FAMILIES(MYTORCH_CUDA_FAMILIES)

}  // namespace mytorch::cuda
