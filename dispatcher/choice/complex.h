// Calls with complex operands. A complex tensor lies in memory as a real one with another dimension
// of size 2, its parts, so that what only moves or adds elements needs no kernel of its own.
#pragma once

#include "core/types/dims.h"
#include "dispatcher/table/op.h"
#include "mytorch/abi.h"

namespace mytorch {

inline bool is_complex(mt_dtype dtype) { return dtype.code == MT_COMPLEX; }

// Returns whether an operand of a call is complex.
bool has_complex(const OpInfo& op, const void* args);

// A complex operand as a real one: its parts are the last dimension. Refers to the operand's
// memory.
class PartsOperand {
 public:
  explicit PartsOperand(const mt_tensor* of);
  // The real parts (0) or the imaginary parts (1) alone, in the operand's shape.
  PartsOperand(const mt_tensor* of, int part);
  PartsOperand(const PartsOperand&) = delete;
  PartsOperand& operator=(const PartsOperand&) = delete;
  const mt_tensor* abi() const { return &abi_; }

 private:
  Dims shape_;
  Dims strides_;
  mt_tensor abi_;
};

// Does the work of run_kernel for a call with complex operands: runs one of the kernels that take
// them. Returns false if there is none.
bool run_complex_kernel(const OpEntry& entry, int device_slot, mt_ctx* ctx, const void* args);

// Copies a tensor into another one of any type and strides, to whose shape it broadcasts. Returns
// false if no kernel takes the copy. Throws Error(kType) for a copy that drops imaginary parts.
bool run_copy(int device_slot, mt_ctx* ctx, const mt_tensor* to, const mt_tensor* from);

}  // namespace mytorch
