#include "backends/cpu-onednn/engine/engine.h"

#include <string>

#include "backends/cpu-onednn/engine/dnnl.h"
#include "backends/cpu-onednn/engine/operand.h"
#include "backends/cpu-onednn/engine/threads.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {
namespace {

const char* instruction_set() {
  using dnnl::cpu_isa;
  switch (dnnl::get_effective_cpu_isa()) {
    case cpu_isa::sse41:
      return "SSE4.1";
    case cpu_isa::avx:
      return "AVX";
    case cpu_isa::avx2:
      return "AVX2";
    case cpu_isa::avx2_vnni:
      return "AVX2 with VNNI";
    case cpu_isa::avx512_core:
      return "AVX-512";
    case cpu_isa::avx512_core_vnni:
      return "AVX-512 with VNNI";
    case cpu_isa::avx512_core_bf16:
      return "AVX-512 with bfloat16";
    default:
      return "this CPU's instructions";
  }
}

// Returns whether oneDNN has an implementation of products of this type other than its reference.
bool multiplies(mt_dtype dtype) {
  try {
    const Desc square({64, 64}, data_type(dtype), dnnl::memory::format_tag::ab);
    const Description product = matmul(Attr(), square, square, Desc(), square);
    return !is_reference(product);
  } catch (const dnnl::error&) {
    return false;
  }
}

}  // namespace

// Never destroyed: kernels may run until the process ends.
const dnnl::engine& engine() {
  static const auto* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

bool runs_on_host() {
  static const bool runs = sdk::openmp::arrives([] { multiplies(sdk::dtype_of<float>); });
  return runs;
}

dnnl_stream_t stream() {
  thread_local const dnnl::stream own(engine());
  return own.get();
}

const char* float_type_reason(mt_dtype dtype) {
  return sdk::is_dtype<float>(dtype) ? nullptr : "[dtype] only float32 is supported";
}

const char* product_type_reason(mt_dtype dtype) {
  if (sdk::is_dtype<float>(dtype)) return nullptr;
  if (sdk::is_dtype<sdk::BFloat16>(dtype)) {
    static const bool can = multiplies(dtype);
    return can ? nullptr : "[dtype] this oneDNN has no bfloat16 products for this CPU";
  }
  if (sdk::is_dtype<sdk::Half>(dtype)) {
    static const bool can = multiplies(dtype);
    return can ? nullptr : "[dtype] this oneDNN has no float16 products for this CPU";
  }
  return "[dtype] oneDNN multiplies floats of 16 and 32 bits";
}

const char* describe_engine() {
  static const std::string text = [] {
    const dnnl_version_t* v = dnnl_version();
    return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
           std::to_string(v->patch) + " with " + instruction_set() +
           (runs_on_host() ? ", on the host's threads" : ", on libgomp's threads");
  }();
  return text.c_str();
}

}  // namespace mytorch::onednn
