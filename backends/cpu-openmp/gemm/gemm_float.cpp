// Products of float32, and of the 16-bit types that compute in it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/gemm/gemm_float.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/gemm/product-inl.h"
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"
#include "backends/cpu-openmp/simd/instruction_set.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE {

const FloatProducts& FloatTable() {
  static constexpr FloatProducts products = {&run_product<float>, &run_product<BFloat16>,
                                             &run_product<Float16>};
#if MYTORCH_BFLOAT16_PAIRS
  static constexpr FloatProducts of_pairs = {
      &run_product<float>, &run_product<BFloat16, BFloat16Pair>, &run_product<Float16>};
  if (simd::has_bfloat16_pairs()) return of_pairs;
#endif
  return products;
}

}  // namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE(mytorch::cpu::gemm_internal, float_products, FloatTable)
