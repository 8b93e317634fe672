// LAPACK's factorizations and solvers as kernels for the CPU. Other operators are those of
// cpu-openmp.
#include "backends/cpu-lapack/common/processor.h"
#include "backends/cpu-lapack/common/threads.h"
#include "backends/cpu-lapack/registry.h"
#include "mytorch/backend/kernel.h"

// Static registration defines another name for the function, so that a program can link several
// backends.
#ifndef MYTORCH_BACKEND_INIT
#define MYTORCH_BACKEND_INIT mt_backend_init
#endif

extern "C" MT_EXPORT int MYTORCH_BACKEND_INIT(const mt_host* host, mt_backend* backend) {
  using namespace mytorch;
  lapack::know_processor();
  return sdk::fill_backend(host, backend,
                           {.name = "cpu-lapack",
                            .version = "1.0",
                            .device_type = "cpu",
                            .kernels = lapack::all_kernels(),
                            .describe = [](void*) { return lapack::describe_library(); }});
}
