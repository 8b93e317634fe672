// Instructions for matrix products by a warp: fragments, their loads, and copies to shared memory
// that run in the background. A lane is named by group = lane / 4 and quad = lane % 4.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace mytorch::cuda {

// d += A B for A (16 x 16), B (16 x 8) of __half or __nv_bfloat16.
//   a0, a1: columns 2 quad and 2 quad + 1 of rows group and group + 8; a2, a3: columns + 8
//   b0, b1: rows 2 quad and 2 quad + 1, then + 8, of column group
//   d[2 r + c]: row group + 8 r, column 2 quad + c
template <class T>
__device__ __forceinline__ void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// d += A B for A (16 x 8), B (8 x 8) of float, of which the lower 13 bits are 0 or are ignored.
//   a0, a1: column quad of rows group and group + 8; a2, a3: column + 4
//   b0, b1: rows quad and quad + 4 of column group; d as above
__device__ __forceinline__ void multiply_tf32(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                              uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Transposes a matrix of 8 x 8 elements, of which a lane holds columns 2 quad and 2 quad + 1 of row
// `group`.
__device__ __forceinline__ uint32_t transposed(uint32_t pair) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

// Loads four matrices of 8 x 8 elements from shared memory. Lane 8 i + r gives the address of row r
// of matrix i, aligned to 16 bytes. to[i] holds columns 2 quad and 2 quad + 1 of row `group` of
// matrix i; with kTransposed, rows 2 quad and 2 quad + 1 of column `group`.
template <bool kTransposed>
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
  }
}

template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
  }
}

__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Loads 16 bytes that are read once. Volatile, so that loads stay in the order of their use.
__device__ __forceinline__ uint4 load_once(const void* from) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}

// The dynamic shared memory of the block.
__device__ __forceinline__ char* shared_memory() {
  extern __shared__ char dynamic_shared_memory[];
  return dynamic_shared_memory;
}

// Copies 16 bytes from global to shared memory in the background, or writes zeros.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool zeros) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(zeros ? 0 : 16)
               : "memory");
}
// Ends a group of copies.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending groups of this thread's copies are running.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace mytorch::cuda
