// The template's backend, compiled against a later minor version of the contract (newer_abi.py).
// Fills in the fields that the version adds.
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
  // The host passes the size of its own version of this struct.
  if (backend->size >= sizeof(*backend)) *backend = with_newer_fields(*backend);
  return MT_OK;
}
