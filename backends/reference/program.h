// Programs as kernels: what mt_backend::compile makes.
#pragma once

#include <span>

#include "mytorch/abi.h"

namespace mytorch::reference {

// A pointwise program as a kernel that takes every layout, mixture of dtypes and alias. The result
// lives forever, as kernels do.
void compile_pointwise(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel);
void compile_reduce(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel);

// The backend's entry.
void compile(const mt_program& program, mt_dtype compute, std::span<const mt_dtype> types,
             mt_kernel_entry& kernel);

}  // namespace mytorch::reference
