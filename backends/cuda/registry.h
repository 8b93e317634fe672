// The files of kernels, each of which defines register_NAME.
#pragma once

#include "mytorch/backend/registry.h"

#define MYTORCH_CUDA_FILES(FILE) \
  FILE(copy)                     \
  FILE(fill)                     \
  FILE(cat)                      \
  FILE(creation)                 \
  FILE(take)                     \
  FILE(scatter)                  \
  FILE(scatter_add)              \
  FILE(rows)                     \
  FILE(nonzero)                  \
  FILE(random)                   \
  FILE(matrix)                   \
  FILE(convolution)              \
  FILE(pooling)                  \
  FILE(scan)                     \
  FILE(sorting)                  \
  FILE(steps)                    \
  FILE(total_norm)               \
  FILE(softmax)                  \
  FILE(layer_norm)               \
  FILE(layer_norm_backward)      \
  FILE(batch_norm)               \
  FILE(group_norm)               \
  FILE(nll_loss)                 \
  FILE(cross_entropy)            \
  FILE(linear_cross_entropy)     \
  FILE(rotary)                   \
  FILE(attention_sm90)           \
  FILE(attention_backward_sm90)  \
  FILE(attention_decode)         \
  FILE(attention_tiles)          \
  FILE(cudnn_attention)          \
  FILE(cholesky)                 \
  FILE(lu)                       \
  FILE(solve)                    \
  FILE(qr)                       \
  FILE(eigenvalues)              \
  FILE(singular_values)          \
  FILE(cusolver_factors)         \
  FILE(cusolver_spectra)         \
  FILE(cusolver_complex)         \
  FILE(fourier)

namespace mytorch::cuda {

MYTORCH_KERNEL_FILES(MYTORCH_CUDA_FILES)

}  // namespace mytorch::cuda
