// Fourier transforms by FFTW as kernels for the CPU. Other operators are those of cpu-openmp.
#include "backends/cpu-fftw/common/library.h"
#include "backends/cpu-fftw/registry.h"
#include "mytorch/backend/kernel.h"

// Static registration defines another name for the function, so that a program can link several
// backends.
#ifndef MYTORCH_BACKEND_INIT
#define MYTORCH_BACKEND_INIT mt_backend_init
#endif

extern "C" MT_EXPORT int MYTORCH_BACKEND_INIT(const mt_host* host, mt_backend* backend) {
  using namespace mytorch;
  return sdk::fill_backend(host, backend,
                           {.name = "cpu-fftw",
                            .version = "1.0",
                            .device_type = "cpu",
                            .kernels = fftw::all_kernels(),
                            .describe = [](void*) { return fftw::describe_library(); }});
}
