#include "backends/cuda/programs/kernels.h"
#include "backends/cuda/runtime/faults.h"

namespace mytorch::cuda {

void write_faults(const mt_ctx& ctx, const Program& program, std::atomic<uint32_t>& site,
                  Params& params) {
  uint32_t mine = site.load(std::memory_order_relaxed);
  if (mine == 0) {
    mine = fault_site(program.base.c_str(), "integer division by zero");
    site.store(mine, std::memory_order_relaxed);
  }
  params.pointer(fault_of(ctx));
  params.word(mine);
}

}  // namespace mytorch::cuda
