// Programs that were not known ahead of time: mt_backend::compile.
#pragma once

#include <span>

#include "mytorch/abi.h"

namespace mytorch::cuda {

// The entry of the backend. One kernel serves all types: kernels are made as they are needed.
void compile_program(const mt_program& program, mt_dtype compute, std::span<const mt_dtype> types,
                     mt_kernel_entry& kernel);

// pointwise/ and reduce/: programs without and with a fold.
void compile_pointwise(const mt_program& program, mt_kernel_entry& kernel);
void compile_reduce(const mt_program& program, mt_kernel_entry& kernel);

}  // namespace mytorch::cuda
