#include "graph/steps/plan_kernel.h"

#include <string>
#include <utility>

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

void run_plan_kernel(const OpEntry& entry, const KernelEntry& kernel, int slot, mt_ctx* ctx,
                     const void* args) {
  int status;
  if (anybody_observes()) [[unlikely]] {
    const KernelCall call{const_cast<OpEntry*>(&entry), slot, ctx, args};
    Observed observed(call);
    Watcher* const watching = watcher();
    if (watching != nullptr) watching->before(call);
    status = kernel.abi.run(kernel.abi.self, ctx, args);
    observed.ran = {status, &kernel};
    if (watching != nullptr) watching->after(call, observed.ran);
  } else {
    status = kernel.abi.run(kernel.abi.self, ctx, args);
  }
  release_scratch(ctx);
  if (status != MT_OK) [[unlikely]]
    fail_kernel(*entry.info, ctx, status);
}

}  // namespace mytorch::graph
