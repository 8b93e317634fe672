// A kernel for outside_scale from before it gained an argument (grow.py).
#include <cstddef>

#include "mytorch/abi_ops/outside_scale.h"
#include "mytorch/backend.h"

namespace sdk = mytorch::sdk;

static_assert(sizeof(mt_args_outside_scale) ==
                  offsetof(mt_args_outside_scale, out) + sizeof(const mt_tensor*),
              "it knows nothing of what was appended");

namespace {

void scale(mt_ctx& /*ctx*/, const mt_args_outside_scale& args) {
  const sdk::TensorView out = args.out;
  if (!out.is<float>()) throw sdk::Declined{};
  const auto by = sdk::to<float>(args.by);
  for (int64_t i = 0; i < out.numel(); ++i) {
    out.data<float>()[i] = by * sdk::TensorView(args.self).data<float>()[i];
  }
}

constexpr mt_kernel_entry kKernels[] = {
    sdk::kernel_of<&scale>("outside_scale", MT_HASH_outside_scale, "loop"),
};

}  // namespace

extern "C" MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
  return sdk::fill_backend(
      host, backend,
      {.name = "grown", .version = "1.0", .device_type = "cpu", .kernels = kKernels});
}
