// Batch and instance normalization.
#include "mytorch/ops/batch_norm.h"

#include <tuple>

#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/addcmul.h"
#include "mytorch/ops/batch_norm_training.h"
#include "mytorch/ops/batch_norm_training_backward.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/var_mean.h"
#include "ops/geometry.h"
#include "ops/gradients.h"
#include "ops/normalization/norm_gradients.h"
#include "ops/normalization/normalization.h"
#include "ops/precision.h"

namespace mytorch {

using namespace normalization;

namespace {

// Moves a running statistic towards `value` * `factor`, without recording a gradient.
void update_running(const Tensor& running, const Tensor& value, double momentum,
                    double factor = 1) {
  if (!running.defined()) return;
  NoGradGuard no_grad;
  const Tensor target = value.detach();
  running.lerp_(factor == 1 ? target : target * factor, momentum);
}

double unbiasing(int64_t count) {
  return static_cast<double>(count) / static_cast<double>(count - 1);
}

TensorSpec channel_statistics(const Tensor& input, int64_t channels) {
  return like(input, {channels}, wide_type(input.dtype()));
}

// `mean`, `var` and `weight` have one element per channel.
Terms batch_norm_terms(const Tensor& input, const Tensor& mean, const Tensor& var,
                       const Tensor& weight, double eps) {
  const int64_t ndim = input.dim();
  const Dims dims = geometry::all_dims_but(1, ndim);
  return {widened(input),
          per_channel(widened(mean), ndim),
          per_channel((widened(var) + eps).rsqrt(), ndim),
          per_channel(widened(weight), ndim),
          dims,
          dims};
}

}  // namespace

namespace shape {

Specs<3> batch_norm_training(const Tensor& input, const Tensor& weight, const Tensor& bias,
                             double /*eps*/) {
  const int64_t channels = check_channels(input, "batch_norm");
  check_parameters({{"weight", weight}, {"bias", bias}}, channels, input, "batch_norm");
  const TensorSpec stats = channel_statistics(input, channels);
  return {like(input), stats, stats};
}

Specs<3> batch_norm_training_backward(const Tensor& grad_out, const Tensor& input,
                                      const Tensor& weight, const Tensor& mean, const Tensor& var,
                                      double /*eps*/, IntList output_mask) {
  const char* op = "batch_norm_training_backward";
  const int64_t channels = check_channels(input, op);
  check_statistics({{"mean", mean}, {"var", var}}, channel_statistics(input, channels), input, op);
  return gradient_specs<3>(grad_out, input, weight, channels, output_mask, op);
}

}  // namespace shape

namespace composite {

Tensors<3> batch_norm_training(const Tensor& input, const Tensor& weight, const Tensor& bias,
                               double eps) {
  const Tensor x = widened(input);
  const Dims dims = geometry::all_dims_but(1, input.dim());
  auto [var, mean] = mytorch::var_mean(x, as_list(dims), 0, true);
  const Tensor normal = (x - mean) * (var + eps).rsqrt();
  return {affine_by_channel(normal, weight, bias, input), mean.reshape(-1), var.reshape(-1)};
}

Tensors<3> batch_norm_training_backward(const Tensor& grad_out, const Tensor& input,
                                        const Tensor& weight, const Tensor& mean, const Tensor& var,
                                        double eps, IntList mask) {
  const Terms terms = batch_norm_terms(input, mean, var, weight, eps);
  return as_results(backward(terms, widened(grad_out), mask[0] != 0, mask[1] != 0, mask[2] != 0),
                    input, weight, mean.sizes());
}

namespace {

// The first result of native_batch_norm, and the mean and variance with which it was computed;
// without `training` those of the input are not needed, and undefined.
Tensors<3> normalize_batch(const Tensor& input, const Tensor& weight, const Tensor& bias,
                           const Tensor& running_mean, const Tensor& running_var, bool training,
                           double momentum, double eps) {
  const int64_t channels = check_channels(input, "batch_norm");
  check_parameters({{"weight", weight},
                    {"bias", bias},
                    {"running_mean", running_mean},
                    {"running_var", running_var}},
                   channels, input, "batch_norm");
  if (training) {
    auto [out, mean, var] = mytorch::batch_norm_training(input, weight, bias, eps);
    if (input.numel() != 0) {
      update_running(running_mean, mean, momentum);
      update_running(running_var, var, momentum, unbiasing(input.numel() / channels));
    }
    return {out, mean, var};
  }
  check_value(running_mean.defined() && running_var.defined(), "batch_norm",
              "running_mean and running_var must be given if training is false");
  // Scale and shift have one element per channel, so the input is read once.
  const int64_t ndim = input.dim();
  const Tensor invstd = (widened(running_var) + eps).rsqrt();
  const Tensor scale = weight.defined() ? invstd * widened(weight) : invstd;
  const Tensor moved = widened(running_mean) * scale;
  const Tensor shift = bias.defined() ? widened(bias) - moved : moved * -1;
  const Tensor out =
      mytorch::addcmul(per_channel(shift, ndim), widened(input), per_channel(scale, ndim));
  return {out.to(input.dtype()), {}, {}};
}

}  // namespace

Tensors<3> native_batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                             const Tensor& running_mean, const Tensor& running_var, bool training,
                             double momentum, double eps) {
  auto [out, mean, var] =
      normalize_batch(input, weight, bias, running_mean, running_var, training, momentum, eps);
  if (training) return {out, mean, (var + eps).rsqrt()};
  const auto none = [&] { return mytorch::empty(0, wide_type(input.dtype()), input.device()); };
  return {out, none(), none()};
}

Tensor batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var, bool training,
                  double momentum, double eps, bool /*cudnn_enabled*/) {
  if (input.dim() == 1 && input.numel() == 0) return input.clone();
  return std::get<0>(
      normalize_batch(input, weight, bias, running_mean, running_var, training, momentum, eps));
}

Tensor instance_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                     const Tensor& running_mean, const Tensor& running_var, bool use_input_stats,
                     double momentum, double eps, bool /*cudnn_enabled*/) {
  const int64_t channels = check_channels(input, "instance_norm");
  if (!use_input_stats) {
    return mytorch::batch_norm(input, weight, bias, running_mean, running_var, false, momentum,
                               eps);
  }
  check_parameters({{"weight", weight},
                    {"bias", bias},
                    {"running_mean", running_mean},
                    {"running_var", running_var}},
                   channels, input, "instance_norm");
  // Each channel of each sample is a channel of one larger sample.
  const int64_t n = input.sizes()[0];
  Dims sizes = to_dims(input.sizes());
  sizes[0] = 1;
  sizes[1] = n * channels;
  auto [normal, mean, var] =
      mytorch::batch_norm_training(widened(input).reshape(as_list(sizes)), {}, {}, eps);
  if (input.numel() != 0) {
    const auto average = [&](const Tensor& x) { return x.detach().reshape({n, channels}).mean(0); };
    const int64_t plane = input.numel() / (n * channels);
    update_running(running_mean, average(mean), momentum);
    update_running(running_var, average(var), momentum, unbiasing(plane));
  }
  return affine_by_channel(normal.reshape(input.sizes()), weight, bias, input);
}

}  // namespace composite

namespace grads {

Tensors<3> batch_norm_backward(const Tensor* grads, const Tensor& input, const Tensor& weight,
                               const Tensor& mean, const Tensor& var, double eps,
                               const bool* wanted) {
  Tensors<3> result;
  if (grads[0].defined()) {
    result = only(wanted, mytorch::batch_norm_training_backward(
                              grads[0], input, weight, mean, var, eps,
                              {int64_t{wanted[0]}, int64_t{wanted[1]}, int64_t{wanted[2]}}));
  }
  if (wanted[0] && (grads[1].defined() || grads[2].defined())) {
    const Terms terms = batch_norm_terms(input, mean, var, weight, eps);
    const int64_t ndim = input.dim();  // d var / dx = 2 * (x - mean) / n
    Tensor& dx = std::get<0>(result);
    dx = plus(
        dx, through_statistics(terms, per_channel(grads[1], ndim), per_channel(grads[2], ndim), 2));
  }
  return result;
}

Tensors<5> batch_norm_double_backward(const Tensor* grads, const Tensor& grad_out,
                                      const Tensor& input, const Tensor& weight, const Tensor& mean,
                                      const Tensor& var, double eps, IntList mask) {
  const Terms terms = batch_norm_terms(input, mean, var, weight, eps);
  const auto parameter = [&](size_t i) {
    return per_channel(incoming(grads, mask, i), input.dim());
  };
  const auto d = double_backward(terms, widened(grad_out), incoming(grads, mask, 0), parameter(1),
                                 parameter(2));
  Tensor d_var;
  if (d.rstd.defined()) {  // rstd = (var + eps)^-1/2
    const Tensor cube = terms.rstd * terms.rstd * terms.rstd;
    d_var = (d.rstd * cube * -0.5).reshape(var.sizes());
  }
  return {d.grad, d.x, reshaped(d.weight, weight), reshaped(d.mean, mean), d_var};
}

}  // namespace grads
}  // namespace mytorch
