#include "graph/regions/region_op.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/runtime/context.h"
#include "dispatcher/table/fields.h"
#include "graph/steps/plan_kernel.h"

namespace mytorch::graph {

// Describes the step like a call of an operator, so that the parts of a plan need not know regions.
struct RegionOp::Described {
  Described(const Backend& backend, const GraphRegion& region, bool scratch)
      : name(region.name()), entry(&info) {
    const size_t inputs = region.inputs().size(), outs = region.outputs().size();
    const size_t operands = inputs + outs + (scratch ? 1 : 0);
    names.reserve(operands);
    for (size_t i = 0; i < operands; ++i) {
      names.push_back(i < inputs          ? absl::StrCat("in", i)
                      : i < inputs + outs ? absl::StrCat("out", i - inputs)
                                          : "scratch");
      if (i < inputs) {
        args.push_back(
            {.name = names[i].c_str(), .written = region.writes(i), .offset = offset_of(i)});
      } else {
        outputs.push_back({names[i].c_str(), offset_of(i), -1});
      }
    }
    info.name = info.base = name.c_str();
    info.schema = info.doc = "";
    info.meaning = Meaning::kPrimitive;
    info.promote = Promote::kNone;
    info.num_inputs = static_cast<int16_t>(inputs);
    info.args = args.data();
    info.num_args = static_cast<int32_t>(args.size());
    info.outputs = outputs.data();
    info.num_outputs = static_cast<int32_t>(outputs.size());
    info.args_size = offset_of(operands);
    kernel.backend = &backend;
    kernel.abi.size = sizeof(mt_kernel_entry);
    kernel.abi.name = "region";
    kernel.abi.run = run_region;
  }

  std::string name;
  std::vector<std::string> names;
  std::vector<ArgInfo> args;
  std::vector<OutputInfo> outputs;
  OpInfo info{};
  OpEntry entry;
  KernelEntry kernel{};
};

const RegionOp::Described& RegionOp::described(const Backend& backend, const GraphRegion& region,
                                               bool scratch) {
  std::string key = absl::StrCat(backend.name, " ", region.name(), " ", region.outputs().size(),
                                 scratch ? " scratch " : " ");
  for (size_t i = 0; i < region.inputs().size(); ++i) key += region.writes(i) ? 'w' : 'r';
  static std::mutex mutex;
  static auto* const known = new absl::flat_hash_map<std::string, std::unique_ptr<Described>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Described>& found = (*known)[key];
  if (found == nullptr) found = std::make_unique<Described>(backend, region, scratch);
  return *found;
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
  made->described_ = &described(backend, region, compiled.scratch_bytes > 0);
  return made;
}

RegionOp::~RegionOp() {
  if (compiled_.destroy != nullptr) compiled_.destroy(compiled_.self);
}

const OpEntry& RegionOp::entry() const { return described_->entry; }

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
  run_plan_kernel(described_->entry, described_->kernel, slot, ctx, args);
}

}  // namespace mytorch::graph
