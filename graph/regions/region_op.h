// A region that a backend has compiled, as one step of a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "dispatcher/choice/choice.h"
#include "dispatcher/table/op.h"
#include "graph/regions/region.h"
#include "graph/steps/kept_args.h"
#include "mytorch/abi_region.h"

namespace mytorch::graph {

class PlanKernelInfo;

class RegionOp {
 public:
  // Has a backend compile a region. Returns null if it declines; `reason` is then why, or "".
  static std::shared_ptr<const RegionOp> compile(const Backend& backend, const GraphRegion& region,
                                                 std::string* reason);
  ~RegionOp();
  RegionOp(const RegionOp&) = delete;
  RegionOp& operator=(const RegionOp&) = delete;

  // The argument struct of the step has operands (inputs, outputs and, if a run needs any, scratch)
  // and random calls. Returns one with none of them.
  KeptArgs new_args() const;
  static uint32_t offset_of(size_t operand) {
    return static_cast<uint32_t>(kOperands + operand * sizeof(const mt_tensor*));
  }
  uint32_t offset_of_random(size_t call) const;

  uint64_t scratch_bytes() const { return compiled_.scratch_bytes; }
  // Returns whether a device graph may hold a run.
  bool is_capturable() const { return (compiled_.flags & MT_REGION_CAPTURABLE) != 0; }
  // Runs the region. Throws its Error, which names the operators.
  void run(int slot, mt_ctx* ctx, const void* args) const;

  const OpEntry& entry() const;

 private:
  static constexpr size_t kOperands = sizeof(mt_args_header) + sizeof(const RegionOp*);

  RegionOp() = default;
  static const PlanKernelInfo& info_of(const Backend& backend, const GraphRegion& region,
                                       bool scratch);
  static int run_region(void* self, mt_ctx* ctx, const void* args);

  mt_compiled_region compiled_{};
  size_t num_inputs_ = 0;
  size_t num_outputs_ = 0;
  size_t num_random_ = 0;
  const PlanKernelInfo* info_ = nullptr;
  mt_kernel_entry kernel_{};
};

}  // namespace mytorch::graph
