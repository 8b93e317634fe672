#include "mytorch/nn/normalization.h"

#include "mytorch/grad_mode.h"
#include "mytorch/nn/init.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/batch_norm.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/layer_norm.h"
#include "nn/modules/options.h"

namespace mytorch::nn {

BatchNorm::BatchNorm(const char* name, int64_t num_features, BatchNormOptions options,
                     int64_t min_dim, int64_t max_dim)
    : name_(name),
      num_features_(num_features),
      options_(options),
      min_dim_(min_dim),
      max_dim_(max_dim) {
  check_at_least(name, 0, {{"num_features", num_features}});
  if (options.affine) {
    weight = empty({num_features}, kFloat32);
    bias = empty({num_features}, kFloat32);
  }
  if (options.track_running_stats) {
    running_mean = empty({num_features}, kFloat32);
    running_var = empty({num_features}, kFloat32);
    num_batches_tracked = empty(IntList(), kInt64);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  register_buffer("running_mean", running_mean);
  register_buffer("running_var", running_var);
  register_buffer("num_batches_tracked", num_batches_tracked);
  reset_parameters();
}

void BatchNorm::reset_parameters() {
  if (weight.defined()) init::ones_(weight);
  if (bias.defined()) init::zeros_(bias);
  if (running_mean.defined()) {
    init::zeros_(running_mean);
    init::ones_(running_var);
    init::zeros_(num_batches_tracked);
  }
}

Tensor BatchNorm::forward(const Tensor& input) {
  if (input.dim() < min_dim_ || input.dim() > max_dim_ || input.size(1) != num_features_) {
    fail(ErrorCode::kShape, "[", name_, "] input ", shape_str(input.sizes()), " does not have ",
         min_dim_, min_dim_ == max_dim_ ? "" : absl::StrCat(" to ", max_dim_), " dimensions with ",
         num_features_, " channels in dimension 1");
  }
  const bool tracks = running_mean.defined();
  if (training() && input.numel() == num_features_) {
    fail(ErrorCode::kValue, "[", name_, "] in training, the variance of input ",
         shape_str(input.sizes()),
         " is that of one value per channel: give a larger batch, or call eval()");
  }
  double momentum = options_.momentum.value_or(0);
  if (training() && tracks) {
    NoGradGuard no_grad;
    num_batches_tracked.add_(1);
    if (!options_.momentum.has_value()) momentum = 1 / num_batches_tracked.item<double>();
  }
  return batch_norm(input, weight, bias, running_mean, running_var, training() || !tracks, momentum,
                    options_.eps);
}

std::string BatchNorm::describe() const {
  return absl::StrCat(name_, "(", num_features_, ", eps=", options_.eps, ", momentum=",
                      options_.momentum.has_value() ? absl::StrCat(*options_.momentum) : "none",
                      ", affine=", text(options_.affine),
                      ", track_running_stats=", text(options_.track_running_stats), ")");
}

LayerNorm::LayerNorm(IntList normalized_shape, LayerNormOptions options)
    : shape_(normalized_shape.vec()), options_(options) {
  if (shape_.empty()) {
    fail(ErrorCode::kValue, "[LayerNorm] normalized_shape is empty: give the last sizes of inputs");
  }
  for (int64_t size : shape_) check_at_least("LayerNorm", 0, {{"a size", size}});
  if (options.elementwise_affine) {
    weight = empty(shape_, kFloat32);
    if (options.bias) bias = empty(shape_, kFloat32);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  reset_parameters();
}

void LayerNorm::reset_parameters() {
  if (weight.defined()) init::ones_(weight);
  if (bias.defined()) init::zeros_(bias);
}

Tensor LayerNorm::forward(const Tensor& input) {
  return layer_norm(input, shape_, weight, bias, options_.eps);
}

std::string LayerNorm::describe() const {
  return absl::StrCat("LayerNorm(", shape_str(shape_), ", eps=", options_.eps,
                      ", elementwise_affine=", text(options_.elementwise_affine), ")");
}

}  // namespace mytorch::nn
