// Programs that are not in ops.yaml: mt_backend::compile.
#pragma once

#include <span>

#include "mytorch/abi.h"

namespace mytorch::cuda {

// The backend's compile function. One entry serves all types: kernels are compiled on demand.
// Throws sdk::Declined if the program has no meaning in the compute type.
void compile_program(const mt_program& program, mt_dtype compute, std::span<const mt_dtype> types,
                     mt_kernel_entry& kernel);

// Defined in pointwise/ and reduce/, for programs without and with a reduction.
void compile_pointwise(const mt_program& program, mt_kernel_entry& kernel);
void compile_reduce(const mt_program& program, mt_kernel_entry& kernel);

}  // namespace mytorch::cuda
