// Errors that only a kernel can see, such as an index that is out of range. A kernel cannot throw;
// the first such value on a stream is noted in memory that the host can read, and whoever waits for
// the stream next gets the error, with the operator's name. What the kernel writes in its place is
// unspecified, but nothing outside its operands is touched.
//
//   static const uint32_t site = fault_site("gather");
//   launch(ctx, "gather", kernel, grid, ..., Faults{fault_of(ctx), site, dim, size});
//   // in the kernel
//   if (!faults.check(index)) index = 0;
#pragma once

#include <cstdint>
#include <string>

#include "mytorch/abi.h"

namespace mytorch::cuda {

struct Fault {
  uint32_t site;  // 0: nothing is wrong
  uint32_t dim;
  int64_t index;
  int64_t size;
};

// That of the context's stream, as kernels reach it. Made when first asked for.
Fault* fault_of(const mt_ctx& ctx);
// The number of an operator ("gather"), for good; `message` is what to say where it is not about an
// index ("integer division by zero").
uint32_t fault_site(const char* op, const char* message = nullptr);

// Whoever waits for `stream` is told what kernels of `other` noted, too: those of a graph that was
// recorded there.
void follow_faults(void* stream, void* other);

// The message of what was noted on a stream since the last call; "" where all was well. The stream
// has been waited for.
std::string take_fault(void* stream);

// A kernel's parameter.
struct Faults {
  Fault* fault;
  uint32_t site;
  uint32_t dim;
  int64_t size;

#ifdef __CUDACC__
  // Whether 0 <= index < size; notes it if not.
  __device__ bool check(int64_t index) const {
    if (static_cast<uint64_t>(index) < static_cast<uint64_t>(size)) return true;
    note(index);
    return false;
  }
  __device__ void note(int64_t index) const {
    if (atomicCAS(&fault->site, 0u, site) != 0) return;
    fault->dim = dim;
    fault->index = index;
    fault->size = size;
  }
#endif
};

// The index check of an operator's kernel, for a dimension of `size` elements. `site` is
// fault_site("gather").
inline Faults faults_of(const mt_ctx& ctx, uint32_t site, int64_t dim, int64_t size) {
  return {fault_of(ctx), site, static_cast<uint32_t>(dim), size};
}

}  // namespace mytorch::cuda
