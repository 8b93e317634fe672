// Generated from ops.yaml by codegen. Do not edit.
// bmm for kernels: the argument struct of each overload, and the hash of its schema.
#ifndef MYTORCH_ABI_OPS_H_BMM
#define MYTORCH_ABI_OPS_H_BMM

#include "mytorch/abi.h"

// bmm(Tensor self, Tensor mat2) -> Tensor
#define MT_HASH_bmm 0x736f27c311566d07ull
typedef struct mt_args_bmm {
  mt_args_header header;
  const mt_tensor* self;
  const mt_tensor* mat2;
  const mt_tensor* out;
} mt_args_bmm;

#endif  // MYTORCH_ABI_OPS_H_BMM
