// A convolution as a graph of cuDNN's, of one operation, and what it is run on.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "backends/cuda/convolution/cudnn_node.h"
#include "backends/cuda/convolution/forms.h"
#include "backends/cuda/convolution/geometry.h"

namespace mytorch::cuda {

cudnnDataType_t cudnn_type_of(mt_dtype dtype);

// Nothing where the library does not take it. `alignment`: bytes, of big, weight and small.
std::optional<Node> graph_of(cudnnHandle_t handle, const Convolution& call, const Form& big,
                             const Form& weight, const Form& small,
                             const std::array<int64_t, 3>& alignment);

struct Operands {
  std::array<void*, 3> data;  // big, weight, small
  void* room;                 // the plan's workspace

  // Queues an execution plan of such a graph; false: it cannot be run.
  bool run(cudnnHandle_t handle, const Node& plan) const;
};

}  // namespace mytorch::cuda
