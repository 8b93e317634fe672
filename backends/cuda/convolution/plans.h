// The choice of cuDNN's engine, or of a kernel of ours. On the first call with a shape, our kernels
// and the engines that the library proposes are timed on the operands of that call. Each thread
// caches its plans. Engines that are not deterministic, or less precise than the types, are
// skipped.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "backends/cuda/common/plan_key.h"
#include "backends/cuda/convolution/operation.h"
#include "backends/cuda/convolution/own.h"

namespace mytorch::cuda {

struct ConvolutionPlan {
  const OwnKernel* own = nullptr;
  std::optional<Descriptor> plan;  // of the library, or absent
  int64_t workspace = 0;           // bytes
  bool final = true;               // false: choose again when timing is possible

  bool exists() const { return own != nullptr || plan; }
  // Queues the work. Returns false if it cannot run.
  bool run(mt_ctx& ctx, cudnnHandle_t handle, const Convolution& call,
           const Operands& operands) const;
};

// Everything on which the choice of a plan depends.
using ConvolutionKey = PlanKey<32>;
ConvolutionKey key_of(const mt_ctx& ctx, const Convolution& call, bool channels_last,
                      const std::array<int64_t, 3>& alignment);
int64_t alignment_of(const void* data);

// Whether the work is large enough to pay for one or two more launches and for timing on the first
// call.
bool is_large(const Convolution& call);

// Returns this thread's plan, or NULL if none has been chosen.
const ConvolutionPlan* known_plan(const mt_ctx& ctx, const ConvolutionKey& key);
// Chooses and caches a plan. `operands` are set, except for `workspace`. `own` are the kernels of
// ours that take the call; without timing, the first of them is chosen.
const ConvolutionPlan& choose_plan(mt_ctx& ctx, cudnnHandle_t handle, const Convolution& call,
                                   const ConvolutionKey& key, const Operands& operands,
                                   std::span<const OwnKernel* const> own,
                                   const std::function<std::optional<Descriptor>()>& graph);

}  // namespace mytorch::cuda
