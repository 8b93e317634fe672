// The files of kernels, each of which defines register_NAME.
#pragma once

#include "mytorch/backend.h"
#include "mytorch/backend/registry.h"

#define MYTORCH_LAPACK_FILES(FILE) \
  FILE(cholesky)                   \
  FILE(lu)                         \
  FILE(indefinite)                 \
  FILE(triangular)                 \
  FILE(qr)                         \
  FILE(eigenvalues)                \
  FILE(general_eigenvalues)        \
  FILE(singular_values)

namespace mytorch::lapack {

// What kernels of matrices take.
inline constexpr uint32_t kMatrices = MT_TAKES_STRIDED | MT_TAKES_COMPLEX;

MYTORCH_KERNEL_FILES(MYTORCH_LAPACK_FILES)

}  // namespace mytorch::lapack
