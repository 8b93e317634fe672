// Which of cuDNN's engines computes a convolution. Those that the library proposes for a shape are
// timed when it comes for the first time, on the operands of that call; plans are kept by each
// thread. Engines that are not deterministic, or less precise than the types say, are passed over.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "backends/cuda/convolution/operation.h"

namespace mytorch::cuda {

struct Plan {
  std::optional<Descriptor> plan;  // absent: the library has nothing
  int64_t workspace = 0;           // bytes
  bool final = true;               // false: to be chosen again when there can be timing
};

// What plans are chosen by.
struct PlanKey {
  std::array<int64_t, 32> words{};
  bool operator==(const PlanKey&) const = default;
};
PlanKey key_of(const mt_ctx& ctx, const Convolution& call, bool channels_last,
               const std::array<int64_t, 3>& alignment);
int64_t alignment_of(const void* data);

// Whether there is so much to do that a launch or two more, and the first call's measurements, pay.
bool is_large(const Convolution& call);

// This thread's plan; NULL: it is to be chosen.
const Plan* known_plan(const mt_ctx& ctx, const PlanKey& key);
// `operands` have their values, apart from `workspace`.
const Plan& choose_plan(mt_ctx& ctx, cudnnHandle_t handle, const Convolution& call,
                        const PlanKey& key, const Operands& operands,
                        const std::function<std::optional<Descriptor>()>& graph);

}  // namespace mytorch::cuda
