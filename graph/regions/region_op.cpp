#include "graph/regions/region_op.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/runtime/context.h"
#include "dispatcher/table/fields.h"
#include "graph/steps/plan_kernel.h"

namespace mytorch::graph {

const PlanKernelInfo& RegionOp::info_of(const Backend& backend, const GraphRegion& region,
                                        bool scratch) {
  std::vector<PlanKernelInfo::Operand> operands;
  const auto add = [&](std::string name, bool output, bool written) {
    operands.push_back({std::move(name), offset_of(operands.size()), output, written});
  };
  for (size_t i = 0; i < region.inputs().size(); ++i) {
    add(absl::StrCat("in", i), false, region.writes(i));
  }
  for (size_t i = 0; i < region.outputs().size(); ++i) add(absl::StrCat("out", i), true, false);
  if (scratch) add("scratch", true, false);
  return PlanKernelInfo::of(backend, region.name(), "region", operands, offset_of(operands.size()));
}

std::shared_ptr<const RegionOp> RegionOp::compile(const Backend& backend, const GraphRegion& region,
                                                  std::string* reason) {
  std::shared_ptr<RegionOp> made(new RegionOp);
  mt_compiled_region compiled{};
  compiled.size = sizeof(compiled);
  const int status = backend.abi.regions->compile(backend.abi.self, &region.abi(), &compiled);
  *reason = take_host_error();
  if (status != MT_OK) {
    if (reason->empty() && status != MT_DECLINED) *reason = absl::StrCat("status ", status);
    return nullptr;
  }
  made->compiled_ = compiled;
  if (compiled.run == nullptr) {
    *reason = "compile gave no function to run";
    return nullptr;
  }
  made->num_inputs_ = region.inputs().size();
  made->num_outputs_ = region.outputs().size();
  made->num_random_ = region.generators().size();
  made->info_ = &info_of(backend, region, compiled.scratch_bytes > 0);
  made->kernel_.size = sizeof(mt_kernel_entry);
  made->kernel_.name = "region";
  made->kernel_.run = run_region;
  return made;
}

RegionOp::~RegionOp() {
  if (compiled_.destroy != nullptr) compiled_.destroy(compiled_.self);
}

const OpEntry& RegionOp::entry() const { return info_->entry(); }

uint32_t RegionOp::offset_of_random(size_t call) const {
  return entry().info->args_size + static_cast<uint32_t>(call * sizeof(mt_random));
}

KeptArgs RegionOp::new_args() const {
  KeptArgs args(offset_of_random(num_random_));
  field<mt_args_header>(args.get(), 0).size = entry().info->args_size;
  field<const RegionOp*>(args.get(), sizeof(mt_args_header)) = this;
  return args;
}

int RegionOp::run_region(void* /*self*/, mt_ctx* ctx, const void* args) {
  const RegionOp& region = *field<const RegionOp*>(args, sizeof(mt_args_header));
  const mt_tensor* const* operands = &field<const mt_tensor*>(args, offset_of(0));
  mt_region_args given{};
  given.size = sizeof(given);
  given.inputs = operands;
  given.outputs = operands + region.num_inputs_;
  given.random = &field<mt_random>(args, region.offset_of_random(0));
  if (region.scratch_bytes() > 0) {
    given.scratch = operands[region.num_inputs_ + region.num_outputs_]->dl.data;
  }
  return region.compiled_.run(region.compiled_.self, ctx, &given);
}

void RegionOp::run(int slot, mt_ctx* ctx, const void* args) const {
  run_plan_kernel(*info_, kernel_, slot, ctx, args);
}

}  // namespace mytorch::graph
