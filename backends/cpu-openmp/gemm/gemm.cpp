#include "backends/cpu-openmp/gemm/gemm.h"

#include "backends/cpu-openmp/gemm/job.h"

namespace mytorch::cpu {
namespace {

using gemm_internal::Job;

int error(mt_ctx* ctx, int status, const char* message) {
  if (ctx->set_error != nullptr) ctx->set_error(ctx, status, message);
  return status;
}

using RunFn = int (*)(mt_ctx*, const Job&);

RunFn find_run(mt_dtype dtype) {
  using namespace gemm_internal;
  switch (dtype.code) {
    case MT_FLOAT:
      return dtype.bits == 32   ? run_float32
             : dtype.bits == 64 ? run_float64
             : dtype.bits == 16 ? run_float16
                                : nullptr;
    case MT_BFLOAT:
      return dtype.bits == 16 ? run_bfloat16 : nullptr;
    case MT_INT:
    case MT_UINT:
      switch (dtype.bits) {
        case 8:
          return run_int8;
        case 16:
          return run_int16;
        case 32:
          return run_int32;
        case 64:
          return run_int64;
      }
  }
  return nullptr;
}

}  // namespace

int gemm(mt_ctx* ctx, const GemmProblem& problem) {
  const RunFn run = find_run(problem.dtype);
  if (run == nullptr) {
    return error(ctx, MT_ERROR_TYPE, "[gemm] there is no matrix product for this dtype");
  }
  const bool relu = problem.activation == GemmProblem::relu;
  if (relu && problem.dtype.code != MT_FLOAT && problem.dtype.code != MT_BFLOAT) {
    return error(ctx, MT_ERROR_TYPE, "[gemm] relu is for floating-point dtypes only");
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
  };
  // A stack of matrices times one matrix is one taller product: the linear layer of a sequence.
  if (job.batch > 1 && job.b_batch == 0 && job.a_batch == job.m * job.a_row &&
      job.c_batch == job.m * job.c_row) {
    job.m *= job.batch;
    job.batch = 1;
  }
  // The kernels write rows of C, so C should have contiguous rows; and few rows are better than few
  // columns where A is contiguous along k. The stride of a dimension of size 1 is arbitrary.
  const bool few_columns = job.n == 1 || (job.n <= 4 && job.a_k == 1 && job.k >= 64);
  if (job.n < job.m && few_columns) {
    job = transposed(job);
  } else if (job.m > 1 && job.c_row == 1 && job.c_col != 1) {
    job = transposed(job);
  }
  if (job.n == 1) job.b_col = job.c_col = 1;
  return run(ctx, job);
}

}  // namespace mytorch::cpu
