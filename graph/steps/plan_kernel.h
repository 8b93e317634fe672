// Kernels that belong to a plan rather than to an operator of the table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dispatcher/choice/choice.h"
#include "dispatcher/table/op.h"

namespace mytorch::graph {

// What profiles keep of a call of such a kernel: an operator and a kernel by name. Never destroyed,
// while what runs the call may be; those that are alike are one.
class PlanKernelInfo {
 public:
  struct Operand {
    std::string name;
    uint32_t offset;  // in the argument struct
    bool output = false;
    bool written = false;
  };
  // The operands are inputs, then outputs; `args_size` is the size of the argument struct. `kernel`
  // names a kernel, or is null for one that was compiled from a program.
  static const PlanKernelInfo& of(const Backend& backend, const std::string& name,
                                  const char* kernel, const std::vector<Operand>& operands,
                                  uint32_t args_size);
  PlanKernelInfo(const PlanKernelInfo&) = delete;

  const OpEntry& entry() const { return entry_; }
  const KernelEntry& kernel() const { return kernel_; }

 private:
  PlanKernelInfo(const Backend& backend, std::string name, const char* kernel,
                 std::vector<Operand> operands, uint32_t args_size);

  const std::string name_;
  const std::vector<Operand> operands_;
  std::vector<ArgInfo> args_;
  std::vector<OutputInfo> outputs_;
  OpInfo info_{};
  OpEntry entry_;
  KernelEntry kernel_{};
};

// Runs a kernel, as the dispatcher would: profilers see the call. Throws its Error.
void run_plan_kernel(const PlanKernelInfo& info, const mt_kernel_entry& kernel, int slot,
                     mt_ctx* ctx, const void* args);

}  // namespace mytorch::graph
