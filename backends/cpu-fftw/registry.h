// The families of kernels: each file of kernels defines the register_NAME of its family.
#pragma once

#include "mytorch/backend.h"
#include "mytorch/backend/registry.h"

#define MYTORCH_FFTW_FAMILIES(FAMILY) FAMILY(transforms)

namespace mytorch::fftw {

MYTORCH_KERNEL_FAMILIES(MYTORCH_FFTW_FAMILIES)

}  // namespace mytorch::fftw
