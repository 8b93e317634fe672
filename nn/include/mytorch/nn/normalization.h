// Normalization layers.
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
  bool track_running_stats = true;  // if false, evaluation also uses batch statistics
};

// Normalizes each channel (dimension 1). In training, uses the statistics of the batch and updates
// the running statistics; in evaluation, uses the running statistics. Keeps the shape.
class BatchNorm : public Module {
 public:
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;               // (channels), ones; undefined without `affine`
  Tensor bias;                 // (channels), zeros; undefined without `affine`
  Tensor running_mean;         // this and the next two: undefined without `track_running_stats`
  Tensor running_var;          // unbiased
  Tensor num_batches_tracked;  // 0-dim int64

 protected:
  BatchNorm(const char* name, int64_t num_features, BatchNormOptions options, int64_t min_dim,
            int64_t max_dim);

 private:
  const char* name_;
  int64_t num_features_;
  BatchNormOptions options_;
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

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;  // whether weight and bias exist
  bool bias = true;
};

// Normalizes over the last dimensions, whose sizes must equal `normalized_shape`. Keeps the shape.
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

}  // namespace mytorch::nn
