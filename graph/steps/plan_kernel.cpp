#include "graph/steps/plan_kernel.h"

#include <memory>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/runtime/context.h"
#include "core/types/status.h"
#include "dispatcher/choice/observe.h"

namespace mytorch::graph {
namespace {

[[noreturn]] void fail_kernel(const OpInfo& info, mt_ctx* ctx, int status) {
  std::string message = std::exchange(static_cast<ThreadContext*>(ctx)->error, {});
  if (message.empty()) message = absl::StrCat("the kernel failed with status ", status);
  fail_status(status, info.base, message);
}

}  // namespace

PlanKernelInfo::PlanKernelInfo(const Backend& backend, std::string name, const char* kernel,
                               std::vector<Operand> operands, uint32_t args_size)
    : name_(std::move(name)), operands_(std::move(operands)), entry_(&info_) {
  for (const Operand& operand : operands_) {
    if (operand.output) {
      outputs_.push_back({operand.name.c_str(), operand.offset, -1});
    } else {
      args_.push_back(
          {.name = operand.name.c_str(), .written = operand.written, .offset = operand.offset});
    }
  }
  info_.name = info_.base = name_.c_str();
  info_.schema = info_.doc = "";
  info_.meaning = Meaning::kPrimitive;
  info_.promote = Promote::kNone;
  info_.num_inputs = static_cast<int16_t>(args_.size());
  info_.args = args_.data();
  info_.num_args = static_cast<int32_t>(args_.size());
  info_.outputs = outputs_.data();
  info_.num_outputs = static_cast<int32_t>(outputs_.size());
  info_.args_size = args_size;
  kernel_.backend = &backend;
  kernel_.compiled = kernel == nullptr;
  kernel_.abi.size = sizeof(mt_kernel_entry);
  kernel_.abi.name = kernel;
}

const PlanKernelInfo& PlanKernelInfo::of(const Backend& backend, const std::string& name,
                                         const char* kernel, const std::vector<Operand>& operands,
                                         uint32_t args_size) {
  std::string key =
      absl::StrCat(backend.name, " ", name, " ", kernel != nullptr ? kernel : "", " ", args_size);
  for (const Operand& operand : operands) {
    absl::StrAppend(&key, " ", operand.name, " ", operand.offset, operand.output ? "o" : "i",
                    operand.written ? "w" : "r");
  }
  static std::mutex mutex;
  static auto* const known = new absl::flat_hash_map<std::string, std::unique_ptr<PlanKernelInfo>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<PlanKernelInfo>& found = (*known)[key];
  if (found == nullptr) {
    found.reset(new PlanKernelInfo(backend, name, kernel, operands, args_size));
  }
  return *found;
}

void run_plan_kernel(const PlanKernelInfo& info, const mt_kernel_entry& kernel, int slot,
                     mt_ctx* ctx, const void* args) {
  int status;
  if (anybody_observes()) [[unlikely]] {
    const KernelCall call{const_cast<OpEntry*>(&info.entry()), slot, ctx, args};
    Observed observed(call);
    Watcher* const watching = watcher();
    if (watching != nullptr) watching->before(call);
    status = kernel.run(kernel.self, ctx, args);
    observed.ran = {status, &info.kernel()};
    if (watching != nullptr) watching->after(call, observed.ran);
  } else {
    status = kernel.run(kernel.self, ctx, args);
  }
  release_scratch(ctx);
  if (status != MT_OK) [[unlikely]]
    fail_kernel(*info.entry().info, ctx, status);
}

}  // namespace mytorch::graph
