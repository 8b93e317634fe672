// mt_backend::compile. The chip interprets programs, so every pointwise operator, reduction and
// derived gradient runs natively.
#pragma once

#include <span>

#include "mytorch/abi.h"

namespace npu {

// Makes a kernel that interprets `program`. Throws sdk::Declined for an unknown operation or fold.
void compile(const mt_program& program, mt_dtype compute, std::span<const mt_dtype> types,
             mt_kernel_entry& kernel);

}  // namespace npu
