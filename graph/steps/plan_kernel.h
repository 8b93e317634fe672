// Kernels that belong to a plan rather than to an operator of the table.
#pragma once

#include "dispatcher/choice/choice.h"
#include "dispatcher/table/op.h"

namespace mytorch::graph {

// Runs a kernel, as the dispatcher would: profilers see the call. Throws its Error.
void run_plan_kernel(const OpEntry& entry, const KernelEntry& kernel, int slot, mt_ctx* ctx,
                     const void* args);

}  // namespace mytorch::graph
