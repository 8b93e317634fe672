// Execution of a kernel from a key and a function that makes the plan for it.
#pragma once

#include <initializer_list>

#include "backends/cpu-onednn/engine/key.h"
#include "backends/cpu-onednn/engine/plan.h"
#include "backends/cpu-onednn/engine/plan_cache.h"

namespace mytorch::onednn {

// Runs the plan for `key` on the context's threads. `data` has an entry for each operand of the
// plan, in order. Throws Declined if oneDNN does not support the call.
void run(mt_ctx& ctx, Key key, std::initializer_list<Data> data, Make make);

}  // namespace mytorch::onednn
