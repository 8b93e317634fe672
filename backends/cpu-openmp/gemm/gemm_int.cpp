// Products of integers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/gemm/gemm_int.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/gemm/product-inl.h"
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal {
namespace HWY_NAMESPACE {

const IntProducts& IntTable() {
  static constexpr IntProducts products = {&run_product<uint8_t>, &run_product<uint16_t>,
                                           &run_product<uint32_t>, &run_product<uint64_t>};
  return products;
}

}  // namespace HWY_NAMESPACE
}  // namespace mytorch::cpu::gemm_internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu::gemm_internal {

MYTORCH_EXPORT_TABLE(int_products, IntTable)

}  // namespace mytorch::cpu::gemm_internal
#endif  // HWY_ONCE
