// The template's backend by someone who has a later minor version of the contract (newer_abi.py):
// what was appended to the structs is filled in.
#define mt_backend_init template_init
#include TEMPLATE
#undef mt_backend_init

namespace {

int nothing;

template <class T>
T with_newer_fields(T value) {
  for (void*& field : value.newer) field = &nothing;
  return value;
}

}  // namespace

extern "C" MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
  const int status = template_init(host, backend);
  if (status != MT_OK) return status;
  static const mt_device_ops device = with_newer_fields(kDevice);
  static const mt_kernel_entry kernels[] = {with_newer_fields(kKernels[0]),
                                            with_newer_fields(kKernels[1])};
  backend->device = &device;
  backend->kernels = kernels;
  // The host says how much of this struct it has.
  if (backend->size >= sizeof(*backend)) *backend = with_newer_fields(*backend);
  return MT_OK;
}
