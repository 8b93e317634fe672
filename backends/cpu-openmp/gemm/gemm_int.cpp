// Instances for integers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/gemm/gemm_int.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/gemm/product-inl.h"
#include "backends/cpu-openmp/gemm/tiny.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal {
namespace HWY_NAMESPACE {

int product_int8(mt_ctx* ctx, const Job& job) { return run_product<uint8_t>(ctx, job); }
int product_int16(mt_ctx* ctx, const Job& job) { return run_product<uint16_t>(ctx, job); }
int product_int32(mt_ctx* ctx, const Job& job) { return run_product<uint32_t>(ctx, job); }
int product_int64(mt_ctx* ctx, const Job& job) { return run_product<uint64_t>(ctx, job); }

}  // namespace HWY_NAMESPACE
}  // namespace mytorch::cpu::gemm_internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu::gemm_internal {

HWY_EXPORT(product_int8);
HWY_EXPORT(product_int16);
HWY_EXPORT(product_int32);
HWY_EXPORT(product_int64);

int run_int8(mt_ctx* ctx, const Job& job) {
  if (is_tiny(job)) return tiny_product<uint8_t>(job), MT_OK;
  return HWY_DYNAMIC_DISPATCH(product_int8)(ctx, job);
}

int run_int16(mt_ctx* ctx, const Job& job) {
  if (is_tiny(job)) return tiny_product<uint16_t>(job), MT_OK;
  return HWY_DYNAMIC_DISPATCH(product_int16)(ctx, job);
}

int run_int32(mt_ctx* ctx, const Job& job) {
  if (is_tiny(job)) return tiny_product<uint32_t>(job), MT_OK;
  return HWY_DYNAMIC_DISPATCH(product_int32)(ctx, job);
}

int run_int64(mt_ctx* ctx, const Job& job) {
  if (is_tiny(job)) return tiny_product<uint64_t>(job), MT_OK;
  return HWY_DYNAMIC_DISPATCH(product_int64)(ctx, job);
}

}  // namespace mytorch::cpu::gemm_internal
#endif  // HWY_ONCE
