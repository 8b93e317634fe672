// Products of float64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/gemm/gemm_double.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/gemm/product-inl.h"
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE {

const DoubleProducts& DoubleTable() {
  static constexpr DoubleProducts products = {&run_product<double>};
  return products;
}

}  // namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE(mytorch::cpu::gemm_internal, double_products, DoubleTable)
