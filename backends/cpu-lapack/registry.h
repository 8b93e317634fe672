// The families of kernels: each file of kernels defines the register_NAME of its family.
#pragma once

#include "mytorch/backend.h"
#include "mytorch/backend/registry.h"

#define MYTORCH_LAPACK_FAMILIES(FAMILY) \
  FAMILY(cholesky)                      \
  FAMILY(lu)                            \
  FAMILY(indefinite)                    \
  FAMILY(triangular)                    \
  FAMILY(qr)                            \
  FAMILY(eigenvalues)                   \
  FAMILY(general_eigenvalues)           \
  FAMILY(singular_values)

namespace mytorch::lapack {

// What kernels of matrices take.
inline constexpr uint32_t kMatrices = MT_TAKES_STRIDED | MT_TAKES_COMPLEX;

MYTORCH_KERNEL_FAMILIES(MYTORCH_LAPACK_FAMILIES)

}  // namespace mytorch::lapack
