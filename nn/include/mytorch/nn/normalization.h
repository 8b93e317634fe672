// Normalization.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mytorch/nn/module.h"

namespace mytorch::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // of the running statistics; without, their plain average
  bool affine = true;                    // whether there are weight and bias
  bool track_running_stats = true;       // without, evaluation uses the batch's statistics too
};

// Normalizes each channel (dimension 1): in training by the statistics of the batch, which also
// move the running ones; in evaluation by the running ones.
class BatchNorm : public Module {
 public:
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;               // (channels), ones; undefined without `affine`
  Tensor bias;                 // (channels), zeros; undefined without `affine`
  Tensor running_mean;         // undefined without `track_running_stats`, as the next two
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

// Of (N, C) or (N, C, L).
class BatchNorm1d final : public BatchNorm {
 public:
  explicit BatchNorm1d(int64_t num_features, BatchNormOptions options = {})
      : BatchNorm("BatchNorm1d", num_features, options, 2, 3) {}
};

// Of (N, C, H, W).
class BatchNorm2d final : public BatchNorm {
 public:
  explicit BatchNorm2d(int64_t num_features, BatchNormOptions options = {})
      : BatchNorm("BatchNorm2d", num_features, options, 4, 4) {}
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;  // whether there are weight and bias
  bool bias = true;
};

// Normalizes over the last dimensions, which must have these sizes.
class LayerNorm final : public Module {
 public:
  explicit LayerNorm(IntList normalized_shape, LayerNormOptions options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;  // ones; undefined without `elementwise_affine`
  Tensor bias;    // zeros; undefined without

 private:
  std::vector<int64_t> shape_;
  LayerNormOptions options_;
};

}  // namespace mytorch::nn
