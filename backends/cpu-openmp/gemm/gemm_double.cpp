// Instances for float64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/gemm/gemm_double.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/gemm/product-inl.h"
#include "backends/cpu-openmp/gemm/tiny.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal {
namespace HWY_NAMESPACE {

int product_float64(mt_ctx* ctx, const Job& job) { return run_product<double>(ctx, job); }

}  // namespace HWY_NAMESPACE
}  // namespace mytorch::cpu::gemm_internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu::gemm_internal {

HWY_EXPORT(product_float64);

int run_float64(mt_ctx* ctx, const Job& job) {
  if (is_tiny(job)) return tiny_product<double>(job), MT_OK;
  return HWY_DYNAMIC_DISPATCH(product_float64)(ctx, job);
}

}  // namespace mytorch::cpu::gemm_internal
#endif  // HWY_ONCE
