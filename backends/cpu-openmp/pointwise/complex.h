// Pointwise programs of complex operands, computed node by node. Operands that are contiguous are
// read and written in place; others, and the values between nodes, are tiles of some elements.
#pragma once

#include "mytorch/abi.h"

namespace mytorch::cpu {

// Makes a kernel from a program whose compute type is complex. Throws Declined for a program with a
// fold, or with a node that complex numbers do not have.
void compile_complex(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel);

}  // namespace mytorch::cpu
