// Generated from ops.yaml by codegen. Do not edit.
// copy_ for kernels: the argument struct of each overload, and the hash of its schema.
#ifndef MYTORCH_ABI_OPS_H_COPY_
#define MYTORCH_ABI_OPS_H_COPY_

#include "mytorch/abi.h"

// copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)
#define MT_HASH_copy_ 0x6f66b4a48723ef8cull
typedef struct mt_args_copy_ {
  mt_args_header header;
  const mt_tensor* self;
  const mt_tensor* src;
  int64_t non_blocking;
} mt_args_copy_;

#endif  // MYTORCH_ABI_OPS_H_COPY_
