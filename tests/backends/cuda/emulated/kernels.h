// Kernels by name, and numbers for their operands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/registry.h"
#include "mytorch/backend/philox.h"
#include "tests/backends/reference/fake_host.h"

namespace mytorch::testing {

// Numbers in [-1, 1], the same for the same seed.
inline std::vector<double> uniform_numbers(int64_t n, uint64_t seed) {
  const sdk::philox::Stream stream(seed, 0);
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(stream.bits32(i) * 0x1p-31 - 1);
  return values;
}

// Runs a kernel. Returns the reason if it does not support the call, its error, or "".
template <class Args>
std::string run(void (*registers)(cuda::KernelEntries&), const char* op, Args& args,
                mt_dtype compute) {
  cuda::KernelEntries kernels;
  registers(kernels);
  args.header.size = sizeof(Args);
  args.header.compute = compute;
  for (const mt_kernel_entry& kernel : kernels) {
    if (std::string(op) != kernel.op) continue;
    if (kernel.supports != nullptr) {
      if (const char* reason = kernel.supports(kernel.self, &args)) return reason;
    }
    TestContext context;
    return kernel.run(kernel.self, context.get(), &args) == MT_OK ? "" : context.error;
  }
  return "there is no kernel";
}

}  // namespace mytorch::testing
