// oneDNN's primitives as kernels for the CPU, beside cpu-openmp.
#include "backends/cpu-onednn/engine/engine.h"
#include "backends/cpu-onednn/registry.h"
#include "mytorch/backend/kernel.h"

// A static registration gives the function a name of its own, so that several backends can be
// linked into one program.
#ifndef MYTORCH_BACKEND_INIT
#define MYTORCH_BACKEND_INIT mt_backend_init
#endif

namespace mytorch::onednn {
namespace {

constexpr void (*kFamilies[])(KernelEntries&) = {
    register_matrix,     register_linear,  register_convolution, register_batch_norm,
    register_layer_norm, register_pooling, register_gelu,        register_copy,
};

const KernelEntries& kernels() {
  static const KernelEntries* const all = [] {
    auto* list = new KernelEntries;
    for (const auto family : kFamilies) family(*list);
    return list;
  }();
  return *all;
}

}  // namespace
}  // namespace mytorch::onednn

extern "C" MT_EXPORT int MYTORCH_BACKEND_INIT(const mt_host* host, mt_backend* backend) {
  using namespace mytorch;
  return sdk::fill_backend(host, backend,
                           {.name = "cpu-onednn",
                            .version = "1.0",
                            .device_type = "cpu",
                            .kernels = onednn::kernels(),
                            .describe = [](void*) { return onednn::describe_engine(); }});
}
