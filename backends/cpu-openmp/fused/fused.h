// Kernels of fused programs: mt_backend::compile_fused.
#pragma once

#include "mytorch/abi_fused.h"

namespace mytorch::cpu {

// The backend's function for fused programs. Throws Declined for those that it cannot hold.
void compile_fused(const mt_fused_program& program, mt_kernel_entry& kernel);

// Defined in tiles.cpp and rows.cpp, for programs without and with rows.
void compile_tiles(const mt_fused_program& program, mt_kernel_entry& kernel);
void compile_rows(const mt_fused_program& program, mt_kernel_entry& kernel);

}  // namespace mytorch::cpu
