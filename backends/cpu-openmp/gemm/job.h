// The job of a kernel: a GemmProblem with its sizes checked and its shape normalized.
#pragma once

#include <cstdint>

#include "mytorch/abi.h"

namespace mytorch::cpu::gemm_internal {

struct Job {
  int64_t m, n, k;  // m and n at least 1
  const void* a;
  const void* b;
  void* c;
  int64_t a_row, a_k;
  int64_t b_k, b_col;
  int64_t c_row, c_col;
  int64_t batch;
  int64_t a_batch, b_batch, c_batch;
  bool accumulate;
  bool relu;
  const void* bias;  // bias[i * bias_row + j * bias_col] is added to element (i, j); NULL: none
  int64_t bias_row, bias_col;
  double alpha;  // of floating-point types
};

// C^T = B^T A^T: the same product with rows and columns exchanged.
inline Job transposed(const Job& job) {
  Job result = job;
  result.m = job.n;
  result.n = job.m;
  result.a = job.b;
  result.a_row = job.b_col;
  result.a_k = job.b_k;
  result.a_batch = job.b_batch;
  result.b = job.a;
  result.b_k = job.a_k;
  result.b_col = job.a_row;
  result.b_batch = job.a_batch;
  result.c_row = job.c_col;
  result.c_col = job.c_row;
  result.bias_row = job.bias_col;
  result.bias_col = job.bias_row;
  return result;
}

// Computes a job of one element type. Returns MT_OK or MT_ERROR_OUT_OF_MEMORY.
using RunFn = int (*)(mt_ctx* ctx, const Job& job);

// The functions for each element type, of the best instruction set of this CPU. Integers of one
// width share a function (storage.h says why).
struct FloatProducts {
  RunFn float32, bfloat16, float16;
};
struct DoubleProducts {
  RunFn float64;
};
struct IntProducts {
  RunFn int8, int16, int32, int64;
};
const FloatProducts& float_products();
const DoubleProducts& double_products();
const IntProducts& int_products();

}  // namespace mytorch::cpu::gemm_internal
