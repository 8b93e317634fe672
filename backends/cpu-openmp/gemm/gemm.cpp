#include "backends/cpu-openmp/gemm/gemm.h"

#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/gemm/tiny.h"

namespace mytorch::cpu {
namespace {

using namespace gemm_internal;

int error(mt_ctx* ctx, int status, const char* message) {
  if (ctx->set_error != nullptr) ctx->set_error(ctx, status, message);
  return status;
}

// Computes the product of elements of T: by plain loops if it is tiny, else by the table's
// function.
template <class T, auto table, auto function>
int run(mt_ctx* ctx, const Job& job) {
  if (is_tiny(job)) return tiny_product<T>(job), MT_OK;
  return (table().*function)(ctx, job);
}

RunFn find_run(mt_dtype dtype) {
  switch (dtype.code) {
    case MT_FLOAT:
      switch (dtype.bits) {
        case 16:
          return &run<Float16, &float_products, &FloatProducts::float16>;
        case 32:
          return &run<float, &float_products, &FloatProducts::float32>;
        case 64:
          return &run<double, &double_products, &DoubleProducts::float64>;
      }
      return nullptr;
    case MT_BFLOAT:
      if (dtype.bits != 16) return nullptr;
      return &run<BFloat16, &float_products, &FloatProducts::bfloat16>;
    case MT_INT:
    case MT_UINT:
      switch (dtype.bits) {
        case 8:
          return &run<uint8_t, &int_products, &IntProducts::int8>;
        case 16:
          return &run<uint16_t, &int_products, &IntProducts::int16>;
        case 32:
          return &run<uint32_t, &int_products, &IntProducts::int32>;
        case 64:
          return &run<uint64_t, &int_products, &IntProducts::int64>;
      }
  }
  return nullptr;
}

}  // namespace

int gemm(mt_ctx* ctx, const GemmProblem& problem) {
  const RunFn function = find_run(problem.dtype);
  if (function == nullptr) {
    return error(ctx, MT_ERROR_TYPE, "[gemm] there is no matrix product for this dtype");
  }
  const bool relu = problem.activation == GemmProblem::relu;
  if (relu && problem.dtype.code != MT_FLOAT && problem.dtype.code != MT_BFLOAT) {
    return error(ctx, MT_ERROR_TYPE, "[gemm] relu is for floating-point dtypes only");
  }
  if (problem.alpha != 1 && problem.dtype.code != MT_FLOAT && problem.dtype.code != MT_BFLOAT) {
    return error(ctx, MT_ERROR_TYPE, "[gemm] alpha is for floating-point dtypes only");
  }
  if (problem.m < 0 || problem.n < 0 || problem.k < 0 || problem.batch < 0) {
    return error(ctx, MT_ERROR_SHAPE, "[gemm] m, n, k and batch must not be negative");
  }
  if (problem.m == 0 || problem.n == 0 || problem.batch == 0) return MT_OK;

  Job job = {
      problem.m,
      problem.n,
      problem.k,
      problem.a.data,
      problem.b.data,
      problem.c.data,
      problem.a.row_stride,
      problem.a.col_stride,
      problem.b.row_stride,
      problem.b.col_stride,
      problem.c.row_stride,
      problem.c.col_stride,
      problem.batch,
      problem.a_batch_stride,
      problem.b_batch_stride,
      problem.c_batch_stride,
      problem.accumulate,
      relu,
      problem.bias,
      /*bias_row=*/0,
      problem.bias_stride,
      problem.alpha,
  };
  // A stack of matrices times a single matrix is one taller product, as in the linear layer of a
  // sequence.
  if (job.batch > 1 && job.b_batch == 0 && job.a_batch == job.m * job.a_row &&
      job.c_batch == job.m * job.c_row) {
    job.m *= job.batch;
    job.batch = 1;
  }
  // The kernels write rows of C, so C should have contiguous rows, and few rows are better than few
  // columns if A is contiguous along k. The stride of a dimension of size 1 is arbitrary.
  const bool few_columns =
      job.n < job.m && (job.n == 1 || (job.n <= 4 && job.a_k == 1 && job.k >= 64));
  const bool contiguous_columns = job.m > 1 && job.c_row == 1 && job.c_col != 1;
  if (few_columns || contiguous_columns) job = transposed(job);
  if (job.n == 1) job.b_col = job.c_col = 1;
  return function(ctx, job);
}

}  // namespace mytorch::cpu
