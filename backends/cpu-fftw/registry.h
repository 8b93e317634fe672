// The files of kernels, each of which defines register_NAME.
#pragma once

#include "mytorch/backend.h"
#include "mytorch/backend/registry.h"

#define MYTORCH_FFTW_FILES(FILE) FILE(transforms)

namespace mytorch::fftw {

MYTORCH_KERNEL_FILES(MYTORCH_FFTW_FILES)

}  // namespace mytorch::fftw
