// A convolution as a graph of cuDNN's, of one operation, and what it is run on.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "backends/cuda/convolution/descriptor.h"
#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/convolution/layout.h"

namespace mytorch::cuda {

cudnnDataType_t cudnn_type_of(mt_dtype dtype);

// Nothing where the library does not take it. `alignment`: bytes, of input, weight and output.
std::optional<Descriptor> graph_of(cudnnHandle_t handle, const Convolution& call,
                                   const Layout& input, const Layout& weight, const Layout& output,
                                   const std::array<int64_t, 3>& alignment);

struct Operands {
  std::array<void*, 3> data;  // input, weight, output
  void* workspace;            // the plan's workspace

  // Queues an execution plan of such a graph; false: it cannot be run.
  bool run(cudnnHandle_t handle, const Descriptor& plan) const;
};

}  // namespace mytorch::cuda
