// The CPU backend: vector code for the instruction set at hand, on the threads of the host.
#include <string>

#include "backends/cpu-openmp/pointwise/compile.h"
#include "backends/cpu-openmp/registry.h"
#include "hwy/targets.h"
#include "mytorch/backend/kernel.h"

// A static registration gives the function a name of its own, so that several backends can be
// linked into one program.
#ifndef MYTORCH_BACKEND_INIT
#define MYTORCH_BACKEND_INIT mt_backend_init
#endif

namespace mytorch::cpu {
namespace {

const KernelEntries& kernels() {
  static const KernelEntries* const all = [] {
    auto* list = new KernelEntries;
#define MYTORCH_CPU_REGISTER(name) register_##name(*list);
    MYTORCH_CPU_FAMILIES(MYTORCH_CPU_REGISTER)
#undef MYTORCH_CPU_REGISTER
    return list;
  }();
  return *all;
}

// The best of the instruction sets that were compiled and that this CPU has.
const char* describe(void* /*self*/) {
  static const std::string text = [] {
    const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
    const int64_t best = usable & -usable;  // better ones have lower bits
    return std::string("vector code for ") + hwy::TargetName(best);
  }();
  return text.c_str();
}

}  // namespace

}  // namespace mytorch::cpu

extern "C" MT_EXPORT int MYTORCH_BACKEND_INIT(const mt_host* host, mt_backend* backend) {
  using namespace mytorch;
  return sdk::fill_backend(host, backend,
                           {.name = "cpu-openmp",
                            .version = "1.0",
                            .device_type = "cpu",
                            .kernels = cpu::kernels(),
                            .compile = &sdk::compile_entry<&cpu::compile>,
                            .compile_priority = -10,
                            .describe = &cpu::describe});
}
