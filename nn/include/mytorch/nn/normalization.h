// Normalization layers. All keep the shape of their input.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mytorch/nn/module.h"

namespace mytorch::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum =
      0.1;                          // of the running statistics; absent: use cumulative averages
  bool affine = true;               // whether weight and bias exist
  bool track_running_stats = true;  // if false, evaluation also uses the statistics of the input
};

struct InstanceNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = false;
  bool track_running_stats = false;
};

// The parameters and statistics of batch and instance norms.
class ChannelNorm : public Module {
 public:
  std::string describe() const override;
  void reset_parameters();
  void reset_running_stats();
  std::optional<double> momentum() const { return options_.momentum; }
  void set_momentum(std::optional<double> momentum) { options_.momentum = momentum; }

  Tensor weight;               // (channels), ones; undefined without `affine`
  Tensor bias;                 // (channels), zeros; undefined without `affine`
  Tensor running_mean;         // this and the next two: undefined without `track_running_stats`
  Tensor running_var;          // unbiased
  Tensor num_batches_tracked;  // 0-dim int64

 protected:
  static constexpr int64_t kLazy = INT64_MIN;  // num_features of the first input
  ChannelNorm(const char* name, int64_t num_features, const BatchNormOptions& options);
  void finish(const Tensor& input, int64_t channel_dim);  // of a lazy module
  // Counts a batch. Returns the momentum of this batch.
  double track();

  const char* name_;
  int64_t num_features_;
  BatchNormOptions options_;

 private:
  void create();
};

// Normalizes each channel (dimension 1). In training, uses the statistics of the batch and updates
// the running statistics; in evaluation, uses the running statistics.
class BatchNorm : public ChannelNorm {
 public:
  Tensor forward(const Tensor& input) override;

 protected:
  BatchNorm(const char* name, int64_t num_features, BatchNormOptions options, int64_t min_dim,
            int64_t max_dim);

 private:
  int64_t min_dim_;
  int64_t max_dim_;
};

// Takes (N, C) or (N, C, L).
class BatchNorm1d final : public BatchNorm {
 public:
  explicit BatchNorm1d(int64_t num_features, BatchNormOptions options = {})
      : BatchNorm("BatchNorm1d", num_features, options, 2, 3) {}
};

// Takes (N, C, H, W).
class BatchNorm2d final : public BatchNorm {
 public:
  explicit BatchNorm2d(int64_t num_features, BatchNormOptions options = {})
      : BatchNorm("BatchNorm2d", num_features, options, 4, 4) {}
};

// Takes (N, C, D, H, W).
class BatchNorm3d final : public BatchNorm {
 public:
  explicit BatchNorm3d(int64_t num_features, BatchNormOptions options = {})
      : BatchNorm("BatchNorm3d", num_features, options, 5, 5) {}
};

// Batch norms that take num_features from their first input. Until then parameters() throws.
class LazyBatchNorm1d final : public BatchNorm {
 public:
  explicit LazyBatchNorm1d(BatchNormOptions options = {})
      : BatchNorm("LazyBatchNorm1d", kLazy, options, 2, 3) {}
};
class LazyBatchNorm2d final : public BatchNorm {
 public:
  explicit LazyBatchNorm2d(BatchNormOptions options = {})
      : BatchNorm("LazyBatchNorm2d", kLazy, options, 4, 4) {}
};
class LazyBatchNorm3d final : public BatchNorm {
 public:
  explicit LazyBatchNorm3d(BatchNormOptions options = {})
      : BatchNorm("LazyBatchNorm3d", kLazy, options, 5, 5) {}
};

// Normalizes each channel of each sample by its own statistics or, in evaluation with
// `track_running_stats`, by the running ones.
class InstanceNorm : public ChannelNorm {
 public:
  Tensor forward(const Tensor& input) override;

 protected:
  InstanceNorm(const char* name, int64_t num_features, InstanceNormOptions options, int64_t dims);

 private:
  int64_t dims_;  // spatial dimensions
};

// Takes (N, C, L) or (C, L).
class InstanceNorm1d final : public InstanceNorm {
 public:
  explicit InstanceNorm1d(int64_t num_features, InstanceNormOptions options = {})
      : InstanceNorm("InstanceNorm1d", num_features, options, 1) {}
};

// Takes (N, C, H, W) or (C, H, W).
class InstanceNorm2d final : public InstanceNorm {
 public:
  explicit InstanceNorm2d(int64_t num_features, InstanceNormOptions options = {})
      : InstanceNorm("InstanceNorm2d", num_features, options, 2) {}
};

// Takes (N, C, D, H, W) or (C, D, H, W).
class InstanceNorm3d final : public InstanceNorm {
 public:
  explicit InstanceNorm3d(int64_t num_features, InstanceNormOptions options = {})
      : InstanceNorm("InstanceNorm3d", num_features, options, 3) {}
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;  // whether weight and bias exist
  bool bias = true;
};

// Normalizes over the last dimensions, whose sizes must equal `normalized_shape`.
class LayerNorm final : public Module {
 public:
  explicit LayerNorm(IntList normalized_shape, LayerNormOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;  // ones; undefined without `elementwise_affine`
  Tensor bias;    // zeros; undefined without `elementwise_affine` or `bias`

 private:
  std::vector<int64_t> shape_;
  LayerNormOptions options_;
};

struct RMSNormOptions {
  std::optional<double> eps = {};  // defaults to the epsilon of the input's type
  bool elementwise_affine = true;  // whether weight exists
};

// Divides by the root of the mean square over the last dimensions, whose sizes must equal
// `normalized_shape`.
class RMSNorm final : public Module {
 public:
  explicit RMSNorm(IntList normalized_shape, RMSNormOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;  // ones; undefined without `elementwise_affine`

 private:
  std::vector<int64_t> shape_;
  RMSNormOptions options_;
};

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;  // whether weight and bias exist
};

// Normalizes each of `num_groups` groups of the channels (dimension 1) of each sample.
class GroupNorm final : public Module {
 public:
  GroupNorm(int64_t num_groups, int64_t num_channels, GroupNormOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;  // (channels), ones; undefined without `affine`
  Tensor bias;    // (channels), zeros; undefined without `affine`

 private:
  int64_t num_groups_;
  int64_t num_channels_;
  GroupNormOptions options_;
};

struct LocalResponseNormOptions {
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
};

// Divides by (k + alpha * mean)^beta, with the mean of the squares of `size` neighboring channels
// (dimension 1).
class LocalResponseNorm final : public Module {
 public:
  explicit LocalResponseNorm(int64_t size, LocalResponseNormOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  int64_t size_;
  LocalResponseNormOptions options_;
};

}  // namespace mytorch::nn
