// The CPU backend: vector code for the processor's best instruction set, on the host's threads.
#include <cstdlib>
#include <string>

#include "backends/cpu-openmp/fused/fused.h"
#include "backends/cpu-openmp/pointwise/compile.h"
#include "backends/cpu-openmp/registry.h"
#include "backends/cpu-openmp/simd/instruction_set.h"
#include "backends/cpu-openmp/simd/matrix_tiles.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/kernel.h"

// A static registration gives the function a name of its own, so that several backends can be
// linked into one program.
#ifndef MYTORCH_BACKEND_INIT
#define MYTORCH_BACKEND_INIT mt_backend_init
#endif

namespace mytorch::cpu {
namespace {

const char* pinned() { return std::getenv("MYTORCH_CPU"); }

const char* describe(void* /*self*/) {
  static const std::string text = [] {
    const std::string left_out = simd::sets_left_out();
    return std::string("vector code for ") + simd::instruction_set() +
           (simd::has_bfloat16_pairs() ? " with BF16" : "") +
           (simd::has_matrix_tiles() ? " and AMX" : "") +
           (pinned() != nullptr ? ", pinned by MYTORCH_CPU" : "") +
           (left_out.empty() ? "" : ", compiled without " + left_out);
  }();
  return text.c_str();
}

}  // namespace
}  // namespace mytorch::cpu

extern "C" MT_EXPORT int MYTORCH_BACKEND_INIT(const mt_host* host, mt_backend* backend) {
  using namespace mytorch;
  const int status = sdk::status_of(
      [] {
        if (cpu::pinned() != nullptr) {
          simd::pin_instruction_set(cpu::pinned());
        } else {
          simd::use_best_instruction_set();
        }
      },
      [host](int error, const char* message) {
        if (host->set_error != nullptr) host->set_error(error, message);
      });
  if (status != MT_OK) return status;
  return sdk::fill_backend(host, backend,
                           {.name = "cpu-openmp",
                            .version = "1.0",
                            .device_type = "cpu",
                            .kernels = cpu::all_kernels(),
                            .compile = &sdk::compile_entry<&cpu::compile>,
                            .compile_priority = -10,
                            .compile_fused = &sdk::compile_fused_entry<&cpu::compile_fused>,
                            .flags = MT_BACKEND_COMPLEX,
                            .describe = &cpu::describe});
}
