// Unusual backends. CMakeLists.txt builds this file once per kind, into a library named after the
// kind.
#include "mytorch/abi.h"
#include "mytorch/abi_ops/heaviside.h"

#if defined(ODD_NO_SYMBOL)

MT_EXPORT int some_other_plugin(void) { return 0; }

#elif defined(ODD_UNRESOLVED)

int symbol_that_nobody_has(void);
MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
  (void)host, (void)backend;
  return symbol_that_nobody_has();
}

#elif defined(ODD_OTHER_MAJOR)

MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
  (void)host;
  backend->abi_major = MT_ABI_MAJOR + 1;
  backend->name = "other-major";
  backend->device_type = "cpu";
  return MT_OK;
}

#elif defined(ODD_NO_HARDWARE)

MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
  (void)backend;
  host->set_error(MT_DECLINED, "there is no such chip here");
  return MT_DECLINED;
}

#elif defined(ODD_NEWER)

// Built against a later minor version, whose structs have additional fields.
typedef struct newer_kernel {
  mt_kernel_entry known;
  const char* more[3];
} newer_kernel;

static int run(void* self, mt_ctx* ctx, const void* given) {
  const mt_args_heaviside* args = (const mt_args_heaviside*)given;
  float* out = (float*)args->out->dl.data;
  int64_t n = 1;
  (void)self, (void)ctx;
  for (int i = 0; i < args->out->dl.ndim; ++i) n *= args->out->dl.shape[i];
  for (int64_t i = 0; i < n; ++i) out[i] = 42;
  return MT_OK;
}

static const newer_kernel kKernels[] = {
    {{sizeof(newer_kernel), "an_op_of_that_version", 1, "unknown", 9, 0, 0, run, 0},
     {"", "", ""}},
    {{sizeof(newer_kernel), "heaviside", MT_HASH_heaviside, "newer", 9, 0, 0, run, 0},
     {"", "", ""}},
};

MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
  if (host->abi_major != MT_ABI_MAJOR || backend->size < sizeof(mt_backend))
    return MT_ERROR_INTERNAL;
  backend->abi_minor = 99;
  backend->name = "newer";
  backend->version = "99";
  backend->device_type = "cpu";
  backend->kernels = &kKernels[0].known;
  backend->num_kernels = 2;
  return MT_OK;
}

#elif defined(ODD_BAD_OPERATOR)

// The second operator is invalid, so the whole backend is rejected.
static int infer(void* self, const void* args, mt_result* results) {
  (void)self, (void)args;
  results[0].ndim = 0;
  results[0].dtype = (mt_dtype){MT_FLOAT, 32, 1};
  return MT_OK;
}

static const mt_operator kOperators[] = {
    {sizeof(mt_operator), "odd::good(Tensor x) -> Tensor", "", "none", infer, 0},
    {sizeof(mt_operator), "odd::bad(Tensor x -> Tensor", "", "none", infer, 0},
};

MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
  (void)host;
  backend->name = "bad-operator";
  backend->version = "1";
  backend->device_type = "cpu";
  backend->operators = kOperators;
  backend->num_operators = 2;
  return MT_OK;
}

#else
#error "which one?"
#endif
