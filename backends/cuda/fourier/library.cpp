#if __has_include(<cufft.h>)

#include "backends/cuda/fourier/library.h"

#include <dlfcn.h>

#include <string>

#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

#define MYTORCH_TEXT_OF_FOURIER(x) #x
#define MYTORCH_TEXT_FOURIER(x) MYTORCH_TEXT_OF_FOURIER(x)
constexpr const char* kFourierLibrary = "libcufft.so." MYTORCH_TEXT_FOURIER(CUFFT_VER_MAJOR);

struct OpenedFourier {
  Fourier routines;
  std::string reason;

  OpenedFourier() {
    void* const library = dlopen(kFourierLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* error = dlerror();
      reason =
          std::string(kFourierLibrary) + " cannot be opened: " + (error != nullptr ? error : "");
      return;
    }
#define MYTORCH_FOURIER_FIND(name)                                                  \
  routines.name = reinterpret_cast<decltype(routines.name)>(dlsym(library, #name)); \
  if (routines.name == nullptr) reason = std::string(kFourierLibrary) + " lacks " #name;
    MYTORCH_FOURIER_ROUTINES(MYTORCH_FOURIER_FIND)
#undef MYTORCH_FOURIER_FIND
  }
};

const OpenedFourier& opened_fourier() {
  static const auto* const instance = new OpenedFourier;
  return *instance;
}

}  // namespace

const char* fourier_reason() {
  const std::string& reason = opened_fourier().reason;
  return reason.empty() ? nullptr : reason.c_str();
}
const Fourier& fourier() { return opened_fourier().routines; }

void check(cufftResult status, const char* what) {
  if (status == CUFFT_SUCCESS) return;
  throw sdk::Error(
      status == CUFFT_ALLOC_FAILED ? MT_ERROR_OUT_OF_MEMORY : MT_ERROR_INTERNAL,
      std::string(what) + ": status " + std::to_string(static_cast<int>(status)) + " of cuFFT");
}

}  // namespace mytorch::cuda

#endif  // cufft_absent.cpp otherwise
