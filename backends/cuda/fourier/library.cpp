#if __has_include(<cufft.h>)

#include "backends/cuda/fourier/library.h"

#include <string>

#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

const sdk::OpenedLibrary<Fourier>& opened_fourier() {
  static const auto* const instance =
      new sdk::OpenedLibrary<Fourier>("libcufft.so." + std::to_string(CUFFT_VER_MAJOR));
  return *instance;
}

}  // namespace

const char* fourier_reason() { return opened_fourier().reason(); }
const Fourier& fourier() { return opened_fourier().routines(); }

void check(cufftResult status, const char* what) {
  if (status == CUFFT_SUCCESS) return;
  throw sdk::Error(
      status == CUFFT_ALLOC_FAILED ? MT_ERROR_OUT_OF_MEMORY : MT_ERROR_INTERNAL,
      std::string(what) + ": status " + std::to_string(static_cast<int>(status)) + " of cuFFT");
}

}  // namespace mytorch::cuda

#endif  // cufft_absent.cpp otherwise
