// Normalization layers. All keep the shape of their input.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

struct BatchNormArgs {
  double eps = 1e-5;
  std::optional<double> momentum =
      0.1;                          // of the running statistics; absent: use cumulative averages
  bool affine = true;               // whether weight and bias exist
  bool track_running_stats = true;  // if false, evaluation also uses the statistics of the input
};
using BatchNormOptions = Options<BatchNormArgs, int64_t>;
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;
using BatchNorm3dOptions = BatchNormOptions;

struct BatchNormAllArgs : BatchNormArgs {
  int64_t num_features = 0;
};

struct InstanceNormArgs {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = false;
  bool track_running_stats = false;
};
using InstanceNormOptions = Options<InstanceNormArgs, int64_t>;
using InstanceNorm1dOptions = InstanceNormOptions;
using InstanceNorm2dOptions = InstanceNormOptions;
using InstanceNorm3dOptions = InstanceNormOptions;

// The parameters and statistics of batch and instance norms.
class ChannelNorm : public Module {
 public:
  using Module::Module;
  std::string describe() const override;
  void reset_parameters();
  void reset_running_stats();
  std::optional<double> momentum() const { return options->momentum; }
  void set_momentum(std::optional<double> momentum);

  Tensor weight;               // (channels), ones; undefined without `affine`
  Tensor bias;                 // (channels), zeros; undefined without `affine`
  Tensor running_mean;         // this and the next two: undefined without `track_running_stats`
  Tensor running_var;          // unbiased
  Tensor num_batches_tracked;  // 0-dim int64
  BuiltOptions<BatchNormAllArgs> options;

 protected:
  static constexpr int64_t kLazy = INT64_MIN;  // num_features of the first input
  ChannelNorm(const char* name, int64_t num_features, const BatchNormArgs& options);
  void finish(const Tensor& input, int64_t channel_dim);  // of a lazy module
  struct Statistics {
    Tensor mean, var;
    double momentum;
  };
  // Counts a batch. Returns the statistics that it updates, or takes, and their momentum. After it,
  // update() takes those over that are not the running ones.
  Statistics track();
  void update(const Statistics& tracked);

  const char* name_ = "";

 private:
  void create();
};

class SyncBatchNorm;

namespace detail {

// Normalizes in training by the batches of several ranks (nn/parallel/sync_batch_norm.h).
struct BatchOfRanks {
  virtual ~BatchOfRanks() = default;
  virtual Tensor normalize(const Tensor& input, const Tensor& weight, const Tensor& bias,
                           const Tensor& running_mean, const Tensor& running_var, double momentum,
                           double eps) const = 0;
};

}  // namespace detail

// Normalizes each channel (dimension 1). In training, uses the statistics of the batch and updates
// the running statistics; in evaluation, uses the running statistics.
class BatchNorm : public ChannelNorm {
 public:
  using ChannelNorm::ChannelNorm;
  Tensor forward(const Tensor& input) override;

 protected:
  BatchNorm(const char* name, int64_t num_features, BatchNormArgs options, int64_t min_dim,
            int64_t max_dim);

 private:
  friend class SyncBatchNorm;
  // The batch is that of several ranks from now on.
  void set_ranks(std::shared_ptr<const detail::BatchOfRanks> ranks);
  int64_t min_dim_ = 0;
  int64_t max_dim_ = 0;
  std::shared_ptr<const detail::BatchOfRanks> ranks_;  // null: this one alone
};

// Takes (N, C) or (N, C, L).
class BatchNorm1d final : public Layer<BatchNorm1d, BatchNorm> {
 public:
  using Layer::Layer;
  explicit BatchNorm1d(int64_t num_features, BatchNormArgs options = {})
      : Layer("BatchNorm1d", num_features, options, 2, 3) {}
};

// Takes (N, C, H, W).
class BatchNorm2d final : public Layer<BatchNorm2d, BatchNorm> {
 public:
  using Layer::Layer;
  explicit BatchNorm2d(int64_t num_features, BatchNormArgs options = {})
      : Layer("BatchNorm2d", num_features, options, 4, 4) {}
};

// Takes (N, C, D, H, W).
class BatchNorm3d final : public Layer<BatchNorm3d, BatchNorm> {
 public:
  using Layer::Layer;
  explicit BatchNorm3d(int64_t num_features, BatchNormArgs options = {})
      : Layer("BatchNorm3d", num_features, options, 5, 5) {}
};

// Batch norms that take num_features from their first input. Until then parameters() throws.
class LazyBatchNorm1d final : public Layer<LazyBatchNorm1d, BatchNorm> {
 public:
  explicit LazyBatchNorm1d(BatchNormArgs options = {})
      : Layer("LazyBatchNorm1d", kLazy, options, 2, 3) {}
};
class LazyBatchNorm2d final : public Layer<LazyBatchNorm2d, BatchNorm> {
 public:
  explicit LazyBatchNorm2d(BatchNormArgs options = {})
      : Layer("LazyBatchNorm2d", kLazy, options, 4, 4) {}
};
class LazyBatchNorm3d final : public Layer<LazyBatchNorm3d, BatchNorm> {
 public:
  explicit LazyBatchNorm3d(BatchNormArgs options = {})
      : Layer("LazyBatchNorm3d", kLazy, options, 5, 5) {}
};

// Normalizes each channel of each sample by its own statistics or, in evaluation with
// `track_running_stats`, by the running ones.
class InstanceNorm : public ChannelNorm {
 public:
  using ChannelNorm::ChannelNorm;
  Tensor forward(const Tensor& input) override;

 protected:
  InstanceNorm(const char* name, int64_t num_features, InstanceNormArgs options, int64_t dims);

 private:
  int64_t dims_ = 0;  // spatial dimensions
};

// Takes (N, C, L) or (C, L).
class InstanceNorm1d final : public Layer<InstanceNorm1d, InstanceNorm> {
 public:
  using Layer::Layer;
  explicit InstanceNorm1d(int64_t num_features, InstanceNormArgs options = {})
      : Layer("InstanceNorm1d", num_features, options, 1) {}
};

// Takes (N, C, H, W) or (C, H, W).
class InstanceNorm2d final : public Layer<InstanceNorm2d, InstanceNorm> {
 public:
  using Layer::Layer;
  explicit InstanceNorm2d(int64_t num_features, InstanceNormArgs options = {})
      : Layer("InstanceNorm2d", num_features, options, 2) {}
};

// Takes (N, C, D, H, W) or (C, D, H, W).
class InstanceNorm3d final : public Layer<InstanceNorm3d, InstanceNorm> {
 public:
  using Layer::Layer;
  explicit InstanceNorm3d(int64_t num_features, InstanceNormArgs options = {})
      : Layer("InstanceNorm3d", num_features, options, 3) {}
};

// Instance norms that take num_features from their first input. Until then parameters() throws.
class LazyInstanceNorm1d final : public Layer<LazyInstanceNorm1d, InstanceNorm> {
 public:
  explicit LazyInstanceNorm1d(InstanceNormArgs options = {})
      : Layer("LazyInstanceNorm1d", kLazy, options, 1) {}
};
class LazyInstanceNorm2d final : public Layer<LazyInstanceNorm2d, InstanceNorm> {
 public:
  explicit LazyInstanceNorm2d(InstanceNormArgs options = {})
      : Layer("LazyInstanceNorm2d", kLazy, options, 2) {}
};
class LazyInstanceNorm3d final : public Layer<LazyInstanceNorm3d, InstanceNorm> {
 public:
  explicit LazyInstanceNorm3d(InstanceNormArgs options = {})
      : Layer("LazyInstanceNorm3d", kLazy, options, 3) {}
};

namespace detail {

// A norm that takes a residual.
class ResidualNorm : public Module {
 public:
  using Module::Module;
  Tensor operator()(const Tensor& input) { return Module::operator()(input); }
  // Returns the norm of input + residual, and this sum: `auto [y, sum] = norm(branch, x)`. One
  // operator computes both if the types and shapes of the operands are equal, and no hook or
  // autocast is in effect. Hooks see the sum and the norm.
  std::tuple<Tensor, Tensor> operator()(const Tensor& input, const Tensor& residual);

 protected:
  ResidualNorm() = default;

 private:
  virtual std::tuple<Tensor, Tensor> add_and_normalize(const Tensor& input,
                                                       const Tensor& residual) = 0;
};

}  // namespace detail

struct LayerNormArgs {
  double eps = 1e-5;
  bool elementwise_affine = true;  // whether weight and bias exist
  bool bias = true;
};
using LayerNormOptions = Options<LayerNormArgs, std::vector<int64_t>>;

struct LayerNormAllArgs : LayerNormArgs {
  std::vector<int64_t> normalized_shape = {};
};

// Normalizes over the last dimensions, whose sizes must equal `normalized_shape`.
class LayerNorm final : public Layer<LayerNorm, detail::ResidualNorm> {
 public:
  using Layer::Layer;
  explicit LayerNorm(IntList normalized_shape, LayerNormArgs options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;  // ones; undefined without `elementwise_affine`
  Tensor bias;    // zeros; undefined without `elementwise_affine` or `bias`
  BuiltOptions<LayerNormAllArgs> options;

 private:
  std::tuple<Tensor, Tensor> add_and_normalize(const Tensor& input,
                                               const Tensor& residual) override;
};

struct RMSNormArgs {
  std::optional<double> eps = {};  // defaults to the epsilon of the input's type
  bool elementwise_affine = true;  // whether weight exists
};
using RMSNormOptions = Options<RMSNormArgs, std::vector<int64_t>>;

struct RMSNormAllArgs : RMSNormArgs {
  std::vector<int64_t> normalized_shape = {};
};

// Divides by the root of the mean square over the last dimensions, whose sizes must equal
// `normalized_shape`.
class RMSNorm final : public Layer<RMSNorm, detail::ResidualNorm> {
 public:
  using Layer::Layer;
  explicit RMSNorm(IntList normalized_shape, RMSNormArgs options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;  // ones; undefined without `elementwise_affine`
  BuiltOptions<RMSNormAllArgs> options;

 private:
  std::tuple<Tensor, Tensor> add_and_normalize(const Tensor& input,
                                               const Tensor& residual) override;
};

struct GroupNormArgs {
  double eps = 1e-5;
  bool affine = true;  // whether weight and bias exist
};
using GroupNormOptions = Options<GroupNormArgs, int64_t, int64_t>;

struct GroupNormAllArgs : GroupNormArgs {
  int64_t num_groups = 0;
  int64_t num_channels = 0;
};

// Normalizes each of `num_groups` groups of the channels (dimension 1) of each sample.
class GroupNorm final : public Layer<GroupNorm> {
 public:
  using Layer::Layer;
  GroupNorm(int64_t num_groups, int64_t num_channels, GroupNormArgs options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;  // (channels), ones; undefined without `affine`
  Tensor bias;    // (channels), zeros; undefined without `affine`
  BuiltOptions<GroupNormAllArgs> options;
};

struct LocalResponseNormArgs {
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
};
using LocalResponseNormOptions = Options<LocalResponseNormArgs, int64_t>;

struct LocalResponseNormAllArgs : LocalResponseNormArgs {
  int64_t size = 0;
};

// Divides by (k + alpha * mean)^beta, with the mean of the squares of `size` neighboring channels
// (dimension 1).
class LocalResponseNorm final : public Layer<LocalResponseNorm> {
 public:
  using Layer::Layer;
  explicit LocalResponseNorm(int64_t size, LocalResponseNormArgs options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

  BuiltOptions<LocalResponseNormAllArgs> options;
};

using CrossMapLRN2dOptions = LocalResponseNormOptions;

// LocalResponseNorm of (N, C, H, W) as Caffe has it: the window of an even `size` has size - 1
// channels, and their sum is still divided by `size`. (PyTorch's never leaves out channel 0, of
// which its gradient knows nothing.)
class CrossMapLRN2d final : public Layer<CrossMapLRN2d> {
 public:
  using Layer::Layer;
  explicit CrossMapLRN2d(int64_t size, LocalResponseNormArgs options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

  BuiltOptions<LocalResponseNormAllArgs> options;
};

}  // namespace mytorch::nn
