// Pointwise programs of complex operands, computed node by node on tiles: the real parts of some
// elements in one array, the imaginary parts in another, so that every operation is vector code.
#pragma once

#include "mytorch/abi.h"

namespace mytorch::cpu {

// Makes a kernel from a program whose compute type is complex. Throws Declined for a program with a
// fold, or with a node that complex numbers do not have.
void compile_complex(const mt_program& program, mt_dtype compute, mt_kernel_entry& kernel);

}  // namespace mytorch::cpu
