// Operators that fusion makes: fused programs (mytorch/abi_fused.h), compiled by a backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dispatcher/choice/choice.h"
#include "dispatcher/table/op.h"
#include "graph/fusion/fused_program.h"
#include "mytorch/abi_fused.h"

namespace mytorch::graph {

// A fused operator and the kernel that runs it. Equal programs share one; none is ever destroyed,
// as the kernels of a backend are not.
class FusedOp {
 public:
  // Returns the operator of a program, or null if the backend does not compile it.
  static const FusedOp* find(const Backend& backend, const FusedProgram& program);

  // The offset of the operand with this number in mt_fused_args.
  static uint32_t offset_of(size_t operand) {
    return static_cast<uint32_t>(offsetof(mt_fused_args, operands) +
                                 operand * sizeof(const mt_tensor*));
  }

  // Returns whether the kernel takes the call.
  bool takes(const void* args) const {
    return kernel_.abi.supports == nullptr ||
           kernel_.abi.supports(kernel_.abi.self, args) == nullptr;
  }
  // Runs the kernel. Throws its Error.
  void run(int slot, mt_ctx* ctx, const void* args) const;

  const OpEntry& entry() const { return entry_; }
  const OpInfo& info() const { return info_; }

 private:
  FusedOp(const Backend& backend, const FusedProgram& program, uint64_t hash);
  bool compile();

  std::string name_;
  std::vector<mt_fused_value> values_;
  std::vector<FusedProgram::FusedCall> kept_;  // what the next points to
  std::vector<mt_fused_call> calls_;
  std::vector<int32_t> output_values_;
  std::vector<std::string> names_;  // of the operands
  std::vector<ArgInfo> args_;
  std::vector<OutputInfo> outputs_;
  mt_fused_program program_{};
  OpInfo info_{};
  OpEntry entry_;
  KernelEntry kernel_{};
};

}  // namespace mytorch::graph
