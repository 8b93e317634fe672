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
#include "graph/steps/plan_kernel.h"
#include "mytorch/abi_fused.h"

namespace mytorch::graph {

// A fused operator and the kernel that runs it. Equal programs share one. It lives as long as a
// plan refers to it, or while it is among the kKept that were asked for last, because a recording
// asks again for what an earlier one has used. If the backend has no function that destroys its
// kernel, it lives for the process.
class FusedOp {
 public:
  static constexpr size_t kKept = 256;

  // Returns the operator of a program, or null if the backend does not compile it.
  static std::shared_ptr<const FusedOp> find(const Backend& backend, const FusedProgram& program);
  // Returns how many there are.
  static size_t count();

  ~FusedOp();
  FusedOp(const FusedOp&) = delete;
  FusedOp& operator=(const FusedOp&) = delete;

  // The offset of the operand with this number in mt_fused_args.
  static uint32_t offset_of(size_t operand) {
    return static_cast<uint32_t>(offsetof(mt_fused_args, operands) +
                                 operand * sizeof(const mt_tensor*));
  }

  // Returns whether the kernel takes the call.
  bool takes(const void* args) const {
    return kernel_.supports == nullptr || kernel_.supports(kernel_.self, args) == nullptr;
  }
  // Runs the kernel. Throws its Error.
  void run(int slot, mt_ctx* ctx, const void* args) const;

  const OpEntry& entry() const { return info_->entry(); }
  const OpInfo& info() const { return *entry().info; }

 private:
  class Table;

  FusedOp(const Backend& backend, const FusedProgram& program, std::string text);
  bool compile(const mt_backend& backend);

  const std::string text_;
  const std::string name_;
  std::vector<mt_fused_value> values_;
  std::vector<FusedProgram::FusedCall> kept_;  // what the next points to
  std::vector<mt_fused_call> calls_;
  std::vector<int32_t> output_values_;
  mt_fused_program program_{};
  const PlanKernelInfo* info_ = nullptr;
  mt_kernel_entry kernel_{};
  void (*destroy_)(void* self) = nullptr;  // the kernel
};

}  // namespace mytorch::graph
