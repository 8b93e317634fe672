// A convolution as a cuDNN graph of one operation, and its operands.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "backends/cuda/common/cudnn.h"
#include "backends/cuda/convolution/convolution.h"
#include "backends/cuda/convolution/layout.h"

namespace mytorch::cuda {

// Returns the graph, or nothing if the library does not support it. `alignment` is in bytes, of
// input, weight and output.
std::optional<Descriptor> graph_of(cudnnHandle_t handle, const Convolution& call,
                                   const Layout& input, const Layout& weight, const Layout& output,
                                   const std::array<int64_t, 3>& alignment);

struct Operands {
  std::array<void*, 3> data;  // input, weight, output
  void* workspace;            // the plan's workspace

  // Queues an execution plan of the graph. Returns false if it cannot run.
  bool run(cudnnHandle_t handle, const Descriptor& plan) const;
};

}  // namespace mytorch::cuda
