// Batch norm by the statistics of all ranks' batches.
#pragma once

#include <cstdint>
#include <optional>

#include "mytorch/distributed.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/normalization.h"

namespace mytorch::nn {

struct SyncBatchNormArgs {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // absent: use cumulative averages
  bool affine = true;
  bool track_running_stats = true;
  distributed::Group group = {};  // default: distributed::world()
};

// A batch norm of (N, C, ...) whose batch in training is that of all ranks of a group, which may
// have batches of different sizes, or none: results, running statistics and gradients of inputs are
// those of one process with the whole batch. Gradients of weight and bias are of this rank's part
// of the batch; DistributedDataParallel averages them. In evaluation, and alone in its group, it is
// a BatchNorm, and does not communicate.
//
// In training all ranks call forward and backward in the same order. Backward computes the gradient
// of the sum of all ranks' losses, as that of the collective operators. It is not differentiable
// again.
class SyncBatchNorm final : public Layer<SyncBatchNorm, BatchNorm> {
 public:
  using Layer::Layer;
  explicit SyncBatchNorm(int64_t num_features, SyncBatchNormArgs options = {});

  // Makes a SyncBatchNorm of every BatchNorm1d to 3d of the module, itself included, which keeps
  // its parameters, buffers and options. The objects keep their class, as they may be members.
  static void convert_sync_batchnorm(Module& module, const distributed::Group& group = {});
};

}  // namespace mytorch::nn
