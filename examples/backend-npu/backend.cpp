// The entry point of the backend "npu".
#include "mytorch/backend.h"

#include "device.h"
#include "kernels.h"
#include "mytorch/backend/operator.h"
#include "operators.h"
#include "program.h"
#include "regions.h"

// A test that wraps the backend renames the function.
#ifndef NPU_INIT
#define NPU_INIT mt_backend_init
#endif

extern "C" MT_EXPORT int NPU_INIT(const mt_host* host, mt_backend* backend) {
  namespace sdk = mytorch::sdk;
  const int status = sdk::fill_backend(
      host, backend,
      {.name = "npu",
       .version = "1.0",
       .device_type = "npu",
       .kernels = npu::kernels(),
       .compile = &sdk::compile_entry<&npu::compile>,
       .regions = &npu::region_ops(),
       .describe = [](void*) { return "a simulated accelerator with its own memory and streams"; },
       .device = &npu::device_ops()});
  if (status == MT_OK) sdk::bring_operators(*backend, npu::operators());
  return status;
}
