// Operands as engines take them.
#pragma once

#include <functional>

#include "distributed/group/collective.h"
#include "distributed/group/state.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/copy_.h"

namespace mytorch::distributed {

// An operand that the engine reads or writes: the tensor, or a contiguous copy that is written
// back.
class Buffer {
 public:
  Buffer(const Tensor& tensor, const GroupState& state, const char* name, const char* op)
      : tensor_(tensor) {
    check_operand(tensor, state, name, op);
    const NoGradGuard no_grad;
    memory_ = tensor.detach().contiguous();
  }
  const Tensor& tensor() const { return tensor_; }
  const Tensor& memory() const { return memory_; }
  const void* read() const { return memory_.raw_data(); }
  void* write() const { return memory_.impl()->abi.dl.data; }
  // To be run when the result may be read.
  std::function<void()> write_back() const {
    return [tensor = tensor_, memory = memory_] {
      const NoGradGuard no_grad;
      if (memory.raw_data() != tensor.raw_data()) tensor.detach().copy_(memory);
      tensor.impl()->bump_version();
    };
  }

 private:
  Tensor tensor_, memory_;
};

}  // namespace mytorch::distributed
