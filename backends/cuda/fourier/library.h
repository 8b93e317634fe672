// cuFFT, which is opened by the first call that needs it.
#pragma once

#include <cufft.h>

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

// The library's functions, by their names.
struct Fourier {
#define MYTORCH_FOURIER_MEMBER(name) decltype(&::name) name = nullptr;
  MYTORCH_FOURIER_ROUTINES(MYTORCH_FOURIER_MEMBER)
#undef MYTORCH_FOURIER_MEMBER
};

// Returns why the library cannot be used, or nullptr.
const char* fourier_reason();
// Call this only if fourier_reason() is nullptr.
const Fourier& fourier();

void check(cufftResult status, const char* what);

}  // namespace mytorch::cuda
