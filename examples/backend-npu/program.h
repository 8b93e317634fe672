// mt_backend::compile: programs as kernels of the chip, which interprets them. With it every
// pointwise operator, reduction and derived gradient runs natively.
#pragma once

#include <span>

#include "mytorch/abi.h"

namespace npu {

// Throws sdk::Declined for a program with an operation or a fold that is unknown here.
void compile(const mt_program& program, mt_dtype compute, std::span<const mt_dtype> types,
             mt_kernel_entry& kernel);

}  // namespace npu
