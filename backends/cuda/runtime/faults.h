// Errors that only a kernel can detect, such as an index out of range. A kernel cannot throw: it
// records the first fault on its stream in memory that the host can read, and the next wait for the
// stream throws the error with the operator's name. The kernel's output is then unspecified, but it
// never accesses memory outside its operands.
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
  uint32_t site;  // 0: no fault
  uint32_t dim;
  int64_t index;
  int64_t size;
};

// Returns the device address of the fault record of the context's stream, which is created on first
// use.
Fault* fault_of(const mt_ctx& ctx);
// Registers an operator ("gather") and returns its permanent number, the same for the same texts.
// `message` is the error text for faults that are not about an index ("integer division by zero");
// {index} and {size} in it become the fault's numbers.
uint32_t fault_site(const char* op, const char* message = nullptr);

// Makes waits for `stream` also report the faults of `other`: the stream on which a graph, now
// launched on `stream`, was captured.
void follow_faults(void* stream, void* other);

// Returns and clears the message of the fault recorded on a stream since the last call, or "" if
// there is none. The caller has waited for the stream.
std::string take_fault(void* stream);

// A kernel parameter through which the kernel records faults.
struct Faults {
  Fault* fault;
  uint32_t site;
  uint32_t dim;
  int64_t size;

#ifdef __CUDACC__
  // Returns whether 0 <= index < size, and records a fault if not.
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

// Returns the index check for a dimension of `size` elements. `site` is fault_site("gather").
inline Faults faults_of(const mt_ctx& ctx, uint32_t site, int64_t dim, int64_t size) {
  return {fault_of(ctx), site, static_cast<uint32_t>(dim), size};
}

}  // namespace mytorch::cuda
