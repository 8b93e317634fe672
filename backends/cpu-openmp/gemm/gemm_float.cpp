// Instances for float32, and for the types that are computed in it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/gemm/gemm_float.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/gemm/product-inl.h"
#include "backends/cpu-openmp/gemm/tiny.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal {
namespace HWY_NAMESPACE {

int product_float32(mt_ctx* ctx, const Job& job) { return run_product<float>(ctx, job); }
int product_bfloat16(mt_ctx* ctx, const Job& job) { return run_product<BFloat16>(ctx, job); }
int product_float16(mt_ctx* ctx, const Job& job) { return run_product<Float16>(ctx, job); }

}  // namespace HWY_NAMESPACE
}  // namespace mytorch::cpu::gemm_internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu::gemm_internal {

HWY_EXPORT(product_float32);
HWY_EXPORT(product_bfloat16);
HWY_EXPORT(product_float16);

int run_float32(mt_ctx* ctx, const Job& job) {
  if (is_tiny(job)) return tiny_product<float>(job), MT_OK;
  return HWY_DYNAMIC_DISPATCH(product_float32)(ctx, job);
}

int run_bfloat16(mt_ctx* ctx, const Job& job) {
  if (is_tiny(job)) return tiny_product<BFloat16>(job), MT_OK;
  return HWY_DYNAMIC_DISPATCH(product_bfloat16)(ctx, job);
}

int run_float16(mt_ctx* ctx, const Job& job) {
  if (is_tiny(job)) return tiny_product<Float16>(job), MT_OK;
  return HWY_DYNAMIC_DISPATCH(product_float16)(ctx, job);
}

}  // namespace mytorch::cpu::gemm_internal
#endif  // HWY_ONCE
