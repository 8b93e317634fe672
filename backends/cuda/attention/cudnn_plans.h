// Execution of attention graphs. Each thread caches its plans, a bounded number of them.
#pragma once

#include <array>
#include <cstdint>

#include "backends/cuda/attention/cudnn_graph.h"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

// The operands of a graph, by CudnnOperand.
using CudnnData = std::array<void*, kScale>;

// Queue cuDNN's engine. Return false, before anything is queued, if it has none for the call.
// `scale` is not part of a plan. The scratch operands are allocated here.
bool run_forward(mt_ctx& ctx, const CudnnAttention& call, const CudnnData& data, float scale);
bool run_backward(mt_ctx& ctx, const CudnnAttention& call, const CudnnData& data, float scale);

}  // namespace mytorch::cuda
