// The same backend in C11, with only the header of the contract: hypot returns 43.
#include "mytorch/abi.h"
#include "mytorch/abi_ops/hypot.h"

// A kernel without flags gets contiguous operands of one type and shape.
static int hypot_f32(void* self, mt_ctx* ctx, const void* given) {
  const mt_args_hypot* args = (const mt_args_hypot*)given;
  const mt_dltensor* out = &args->out->dl;
  float* data = (float*)out->data;
  int64_t n = 1;
  (void)self;
  (void)ctx;
  if (out->dtype.code != MT_FLOAT || out->dtype.bits != 32) return MT_DECLINED;
  for (int32_t d = 0; d < out->ndim; ++d) n *= out->shape[d];
  for (int64_t i = 0; i < n; ++i) data[i] = 43.0f;
  return MT_OK;
}

static const mt_kernel_entry kKernels[] = {{.size = sizeof(mt_kernel_entry),
                                            .op = "hypot",
                                            .hash = MT_HASH_hypot,
                                            .name = "answer",
                                            .run = hypot_f32}};

MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
  if (host->abi_major != MT_ABI_MAJOR) return MT_ERROR_UNSUPPORTED;
  backend->abi_major = MT_ABI_MAJOR;
  backend->abi_minor = MT_ABI_MINOR;
  backend->name = "answer-c";
  backend->version = "1.0";
  backend->device_type = "cpu";
  backend->kernels = kKernels;
  backend->num_kernels = 1;
  return MT_OK;
}
