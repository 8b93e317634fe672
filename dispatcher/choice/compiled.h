// Kernels that a backend compiles from the programs of an operator (mt_backend::compile).
//
// A call finds its kernel by its program, its compute type and the types of the program's operands
// in a few nanoseconds: without a lock, an allocation, or a write to memory that threads share. The
// kernels of a program and a compute type form a chain, which only grows. It is short, because the
// operands of most calls have that type. A kernel is complete before a release store makes it the
// first of its chain, so that the acquire load of the first finds it complete; kernels are never
// moved or destroyed. A call that finds none takes the operator's mutex and asks the backend, once
// for each combination of types: a refusal is kept, too.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "dispatcher/table/op.h"
#include "mytorch/abi.h"

namespace mytorch {

struct Backend;

// The kernel for one combination of types.
class CompiledKernel {
 public:
  mt_kernel_entry abi{};  // `run` is null if the backend declines these types

  // Whether the kernel is known to take a call of its types without conversion, provided that no
  // operand is complex that the program does not read.
  bool takes(const void* args) const {
    return takes_all_ || (takes_apart_ && outputs_are_apart(args));
  }

 private:
  friend class CompiledOp;
  struct CompiledOperand {
    uint32_t offset;  // in the argument struct
    uint32_t type;    // 0 if it is absent
  };

  inline bool has_types(const void* args) const;
  bool outputs_are_apart(const void* args) const;

  const CompiledKernel* next_ = nullptr;
  uint32_t compute_ = 0;
  bool takes_all_ = false;
  bool takes_apart_ = false;               // calls of which no output is an input
  std::vector<CompiledOperand> operands_;  // inputs in node order, then outputs
  size_t num_inputs_ = 0;
};

// The kernels that a backend compiled from the programs of one operator.
class CompiledOp {
 public:
  // `otherwise` chooses between all kernels of the operator.
  CompiledOp(const OpEntry& entry, const Backend& backend, const BoundKernel& otherwise);
  CompiledOp(const CompiledOp&) = delete;
  CompiledOp& operator=(const CompiledOp&) = delete;

  // Returns the kernel for a call, compiled on first use; null if the backend declines.
  const CompiledKernel* find(const void* args);

  // The function of an operator that asks these kernels first: runs a kernel that takes the call,
  // and leaves all other calls, among them the first of their types, to the choice.
  static int run(void* self, mt_ctx* ctx, const void* args);

 private:
  size_t chain_of(const void* args) const;
  inline const CompiledKernel* known(const void* args) const;
  const CompiledKernel& add(const void* args);

  const OpEntry& entry_;
  const Backend& backend_;
  const BoundKernel& otherwise_;
  std::vector<std::atomic<const CompiledKernel*>> chains_;  // by variant and compute type
  std::mutex mutex_;                                        // of those who add kernels
  std::vector<std::unique_ptr<const CompiledKernel>> kept_;
};

}  // namespace mytorch
