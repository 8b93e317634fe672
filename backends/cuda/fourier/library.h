// cuFFT, which is opened by the first call that needs it.
#pragma once

#include <cufft.h>

#include "mytorch/backend/library.h"

namespace mytorch::cuda {

#define MYTORCH_FOURIER_ROUTINES(F) \
  F(cufftCreate)                    \
  F(cufftDestroy)                   \
  F(cufftSetAutoAllocation)         \
  F(cufftMakePlanMany64)            \
  F(cufftSetStream)                 \
  F(cufftSetWorkArea)               \
  F(cufftExecC2C)                   \
  F(cufftExecR2C)                   \
  F(cufftExecC2R)                   \
  F(cufftExecZ2Z)                   \
  F(cufftExecD2Z)                   \
  F(cufftExecZ2D)

MYTORCH_ROUTINES(Fourier, MYTORCH_FOURIER_ROUTINES);

// Returns why the library cannot be used, or nullptr.
const char* fourier_reason();
// Call this only if fourier_reason() is nullptr.
const Fourier& fourier();

void check(cufftResult status, const char* what);

}  // namespace mytorch::cuda
