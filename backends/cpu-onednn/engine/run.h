// How a kernel runs: with a key for what it is to do, and a way to plan that where nobody has yet.
#pragma once

#include <initializer_list>

#include "backends/cpu-onednn/engine/key.h"
#include "backends/cpu-onednn/engine/plan.h"
#include "backends/cpu-onednn/engine/plan_cache.h"

namespace mytorch::onednn {

// Runs the plan for `key` on the context's threads. `data` is that of the plan's operands, in their
// order. Declines what oneDNN does not do.
void run(mt_ctx& ctx, Key key, std::initializer_list<Data> data, Make make);

}  // namespace mytorch::onednn
