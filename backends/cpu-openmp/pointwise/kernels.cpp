// The kernels of the pointwise operators.
#include "backends/cpu-openmp/pointwise/driver.h"
#include "backends/cpu-openmp/registry.h"

namespace mytorch::cpu {

void register_pointwise(KernelEntries& kernels) {
  for (const PointwiseOp& op : programs().pointwise) {
    mt_kernel_entry kernel{};
    kernel.size = sizeof(kernel);
    kernel.op = op.name;
    kernel.hash = op.hash;
    kernel.name = "vector_loop";
    kernel.flags = MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;
    kernel.run = &run_pointwise;
    kernel.self = const_cast<PointwiseOp*>(&op);
    kernels.push_back(kernel);
  }
}

}  // namespace mytorch::cpu
