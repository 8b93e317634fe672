// Kernels from programs.
#pragma once

#include <span>

#include "mytorch/abi.h"

namespace mytorch::reference {

// Make a kernel from a program. It takes all layouts, mixed dtypes and aliases. Kernels are never
// destroyed.
void compile_pointwise(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel);
// Of complex operands; declines programs with a fold.
void compile_complex(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel);
void compile_reduce(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel);

// mt_backend::compile.
void compile(const mt_program& program, mt_dtype compute, std::span<const mt_dtype> types,
             mt_kernel_entry& kernel);

}  // namespace mytorch::reference
