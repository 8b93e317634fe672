// Kernels of fused programs: mt_backend::compile_fused.
#pragma once

#include "mytorch/abi_fused.h"

namespace mytorch::cuda {

// The backend's function for fused programs. Throws sdk::Declined for those that it cannot hold.
// Kernels are compiled on demand, one for each combination of layouts.
void compile_fused(const mt_fused_program& program, mt_kernel_entry& kernel);

}  // namespace mytorch::cuda
