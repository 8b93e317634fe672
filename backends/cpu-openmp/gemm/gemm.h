// Matrix products on the CPU: C = A B and C += A B, batched, for any strides and any mytorch dtype
// except bool. All matrix products, linear layers and im2col convolutions of the backend use it.
//
// How it works
// ------------
// A core multiplies far faster than it reads: with two fused multiply-adds of 8 floats per cycle, a
// product that read both operands of each from memory would need 128 bytes per cycle. All of the
// speed comes from reusing each number many times at each level of the memory hierarchy (Goto and
// van de Geijn, "Anatomy of high-performance matrix multiplication", 2008; the loop names are those
// of BLIS). From the inside out, with the figures of AVX2 in float32:
//
//   registers  A tile of C, 6 x 16, lives in 12 of the 16 vector registers while k runs. Each step
//              loads one row of B (2 vectors) and broadcasts 6 elements of A: 8 loads feed 12
//              multiply-adds, 6 cycles of arithmetic for 4 of loading. 12 independent sums also
//              cover the latency of the adder (4 cycles x 2 pipes = 8 in flight).
//   L1         A panel of B, kc x 16, is used by every tile of a column of tiles. It may fill the
//              whole L1: it is read sequentially, so the hardware prefetcher hides the few lines
//              that A and C evict, and a long kc halves the traffic to C.
//   L2         A block of A, mc x kc, is used by every panel of B; it takes about half the L2.
//              Streaming it costs 24 bytes per 6 cycles.
//   L3         A block of B, kc x nc, is used by every block of A.
//
//   for jc over n by nc                         B block     -> L3
//     for pc over k by kc    pack B
//       for ic over m by mc  pack A             A block     -> L2
//         for jr over nc by 16                  B panel     -> L1
//           for ir over mc by 6                 C tile      -> registers
//
// Packing copies a block into the order in which the microkernel reads it: unit stride, no TLB
// misses, no cache-set conflicts for power-of-two row lengths, zeros past the edge so that the
// microkernel needs no masks, and converted to the compute type (bfloat16 and float16 to float32)
// or, for processors that multiply and add pairs of bfloat16, to pairs along k.
// It also confines strides to packing: a transposed operand costs a transposing copy, O(mk), and
// nothing in the O(mnk) loop.
//
// Small products skip packing: up to 64 multiplications are plain loops, and larger products read A
// or B in place if a copy would not pay (make_plan in product-inl.h decides). Products of one row
// or column, and of up to four if the other operand would need a transpose, are bound by memory
// and have kernels in matvec-inl.h.
//
// The tile is 14 x 32 with AVX-512, 28 of 32 registers. kc, mc and nc come from the sizes of the
// caches (blocking.cpp). Highway compiles the kernels once per instruction set and chooses at run
// time.
//
// Threads share nothing: each computes a rectangle of C by all of the above. Packing some of A or B
// twice costs less than sharing copies: each line that one core packs and another reads moves
// between their caches twice (25 to 45 ns per line as measured, a third of a 256 x 256 x 256
// product), and so do lines of C if rows go to any free thread. Results do not depend on the number
// of threads: k is never split, so one thread sums each element of C, in one order.
#pragma once

#include <cstdint>

#include "mytorch/abi.h"

namespace mytorch::cpu {

// Strides are in elements. Those of A and B may be zero (a broadcast) or negative.
struct ConstMatrix {
  const void* data;
  int64_t row_stride, col_stride;
};
struct Matrix {
  void* data;
  int64_t row_stride, col_stride;
};

// For each i in [0, batch): C_i = activation(alpha A_i B_i + bias), or with `accumulate`,
// C_i = activation(C_i + alpha A_i B_i + bias). A is m x k, B is k x n, C is m x n and overlaps
// neither. With k = 0 the product is zero.
//
// float16 and bfloat16 are multiplied and summed in float32 and rounded once, to nearest even, at
// the end. Processors with products of bfloat16 (simd/bfloat16-inl.h) count numbers and products
// below 2^-126 as zero in products of more than a few rows and columns. Integers wrap around. NaN
// and infinity propagate: no product is skipped because a factor is zero.
struct GemmProblem {
  enum Activation { none, relu };

  mt_dtype dtype;
  int64_t m, n, k;
  ConstMatrix a, b;
  Matrix c;
  int64_t batch = 1;
  int64_t a_batch_stride = 0, b_batch_stride = 0, c_batch_stride = 0;
  bool accumulate = false;
  const void* bias = nullptr;  // n elements, one per column; NULL for none
  int64_t bias_stride = 1;
  Activation activation = none;  // relu is for floating-point dtypes, and keeps NaN
  double alpha = 1;              // of floating-point dtypes, in the compute type
};

// Returns MT_OK; MT_ERROR_TYPE for an unsupported dtype; MT_ERROR_SHAPE for a negative size;
// MT_ERROR_OUT_OF_MEMORY if the context has no scratch memory left. Errors leave C untouched.
int gemm(mt_ctx* ctx, const GemmProblem& problem);

}  // namespace mytorch::cpu
