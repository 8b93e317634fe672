// Layer, batch, group, instance and root-mean-square normalization. 16-bit types compute in
// float32.
#include "ops/normalization.h"

#include <limits>

#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/addcmul.h"
#include "mytorch/ops/batch_norm.h"
#include "mytorch/ops/batch_norm_training.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/native_batch_norm.h"
#include "mytorch/ops/native_group_norm.h"
#include "mytorch/ops/native_layer_norm.h"
#include "mytorch/ops/native_layer_norm_backward.h"
#include "mytorch/ops/native_rms_norm.h"
#include "mytorch/ops/rsqrt.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/var_mean.h"
#include "ops/creation.h"
#include "ops/geometry.h"
#include "ops/gradients.h"
#include "ops/precision.h"

namespace mytorch {
namespace {

void check_floating(const Tensor& input, const char* op) {
  if (!input.is_floating_point()) {
    fail(ErrorCode::kType, "[", op, "] input is ", dtype_name(input.dtype()),
         ": it must be of a floating type");
  }
}

void check_trailing(const Tensor& input, IntList normalized_shape, const char* op) {
  const size_t n = normalized_shape.size();
  const IntList sizes = input.sizes();
  if (n == 0 || sizes.size() < n ||
      !(IntList(sizes.data() + sizes.size() - n, n) == normalized_shape)) {
    fail(ErrorCode::kShape, "[", op, "] input of shape ", shape_str(sizes),
         " does not end in normalized_shape ", shape_str(normalized_shape));
  }
}

// An optional parameter: of `sizes`, of the input's type or the one it computes in.
void check_parameter(const Tensor& parameter, const char* name, IntList sizes, const Tensor& input,
                     const char* op) {
  if (!parameter.defined()) return;
  if (!(parameter.sizes() == sizes)) {
    fail(ErrorCode::kShape, "[", op, "] ", name, " has shape ", shape_str(parameter.sizes()),
         ", but input of shape ", shape_str(input.sizes()), " takes ", shape_str(sizes));
  }
  if (parameter.dtype() != input.dtype() && parameter.dtype() != wide_type(input.dtype())) {
    fail(ErrorCode::kType, "[", op, "] ", name, " is ", dtype_name(parameter.dtype()),
         ", but input is ", dtype_name(input.dtype()));
  }
}

int64_t check_channels(const Tensor& input, const char* op) {
  check_floating(input, op);
  if (input.dim() < 2) {
    fail(ErrorCode::kShape, "[", op, "] input has shape ", shape_str(input.sizes()),
         ": it must be (N, C, ...)");
  }
  return input.sizes()[1];
}

// The number of channels, which divides into groups.
int64_t check_groups(const Tensor& input, int64_t groups, const char* op) {
  const int64_t channels = check_channels(input, op);
  if (groups <= 0 || channels % groups != 0) {
    fail(ErrorCode::kValue, "[", op, "] ", channels, " channels do not divide into ", groups,
         " groups");
  }
  return channels;
}

// The elements of one channel of one sample.
int64_t plane_of(const Tensor& input) {
  return geometry::product({input.sizes().data() + 2, static_cast<size_t>(input.dim() - 2)});
}

// out * weight + bias, each of which may be absent.
Tensor affine(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (weight.defined() && bias.defined()) return mytorch::addcmul(bias, x, weight);
  if (weight.defined()) return mytorch::mul(x, weight);
  return bias.defined() ? mytorch::add(x, bias) : x;
}

// Moves a running statistic, which takes no part in differentiation.
void update_running(const Tensor& running, const Tensor& value, double momentum) {
  if (!running.defined()) return;
  NoGradGuard no_grad;
  running.copy_(
      mytorch::add(mytorch::mul(running, 1 - momentum), mytorch::mul(value.detach(), momentum)));
}

double unbiasing(int64_t count) {
  return static_cast<double>(count) / static_cast<double>(count - 1);
}

Dims last_dims(IntList shape) {
  Dims dims;
  for (int64_t d = -static_cast<int64_t>(shape.size()); d < 0; ++d) dims.push_back(d);
  return dims;
}

Dims all_but_channels(int64_t ndim) {
  Dims dims;
  for (int64_t d = 0; d < ndim; ++d) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

TensorSpec unwanted_or(TensorSpec spec, IntList mask, size_t i) {
  if (mask[i] == 0) spec.sizes = {0};
  return spec;
}

void check_mask(IntList mask, size_t size, const char* op) {
  if (mask.size() != size) {
    fail(ErrorCode::kValue, "[", op, "] output_mask has ", mask.size(), " values, not ", size);
  }
}

void check_gradient(const Tensor& grad_out, const Tensor& input, const char* op) {
  if (!(grad_out.sizes() == input.sizes())) {
    fail(ErrorCode::kShape, "[", op, "] grad_out has shape ", shape_str(grad_out.sizes()),
         ", but input has shape ", shape_str(input.sizes()));
  }
}

// Of the statistics of rows: the last dimensions have size 1.
TensorSpec row_statistics(const Tensor& input, IntList normalized_shape) {
  TensorSpec stats = like(input);
  stats.dtype = wide_type(input.dtype());
  for (size_t i = input.dim() - normalized_shape.size(); i < stats.sizes.size(); ++i) {
    stats.sizes[i] = 1;
  }
  return stats;
}

// What a backward op returns for the gradients not wanted.
Tensor or_empty(const Tensor& gradient, IntList sizes, ScalarType dtype, Device device) {
  if (!gradient.defined()) return mytorch::empty(0, dtype, device);
  return gradient.reshape(sizes).to(dtype);
}

}  // namespace

namespace normalization {

Tensor per_channel(const Tensor& x, int64_t ndim) {
  if (!x.defined()) return x;
  Dims sizes(ndim, 1);
  sizes[1] = x.numel();
  return x.reshape(as_list(sizes));
}

Terms layer_norm_terms(const Tensor& input, IntList normalized_shape, const Tensor& mean,
                       const Tensor& rstd, const Tensor& weight) {
  Terms terms{widened(input), widened(mean), widened(rstd), widened(weight), {}, {}};
  const int64_t lead = input.dim() - static_cast<int64_t>(normalized_shape.size());
  for (int64_t d = 0; d < input.dim(); ++d) (d < lead ? terms.others : terms.over).push_back(d);
  return terms;
}

Terms batch_norm_terms(const Tensor& input, const Tensor& mean, const Tensor& var,
                       const Tensor& weight, double eps) {
  const int64_t ndim = input.dim();
  const Dims dims = all_but_channels(ndim);
  return {widened(input),
          per_channel(widened(mean), ndim),
          per_channel(mytorch::rsqrt(mytorch::add(widened(var), eps)), ndim),
          per_channel(widened(weight), ndim),
          dims,
          dims};
}

Terms group_norm_terms(const Tensor& input, const Tensor& mean, const Tensor& rstd,
                       const Tensor& weight, int64_t groups) {
  const int64_t n = input.sizes()[0], each = input.sizes()[1] / groups;
  const auto by_group = [&](const Tensor& x) { return widened(x).reshape({n, groups, 1, 1}); };
  const Tensor factor = weight.defined() ? widened(weight).reshape({1, groups, each, 1}) : Tensor();
  return {widened(input).reshape({n, groups, each, plane_of(input)}),
          by_group(mean),
          by_group(rstd),
          factor,
          {2, 3},
          {0, 3}};
}

}  // namespace normalization

namespace shape {

std::tuple<TensorSpec, TensorSpec, TensorSpec> native_layer_norm(const Tensor& input,
                                                                 IntList normalized_shape,
                                                                 const Tensor& weight,
                                                                 const Tensor& bias,
                                                                 double /*eps*/) {
  check_floating(input, "layer_norm");
  check_trailing(input, normalized_shape, "layer_norm");
  check_parameter(weight, "weight", normalized_shape, input, "layer_norm");
  check_parameter(bias, "bias", normalized_shape, input, "layer_norm");
  const TensorSpec stats = row_statistics(input, normalized_shape);
  return {spec_like(input), stats, stats};
}

std::tuple<TensorSpec, TensorSpec, TensorSpec> native_layer_norm_backward(
    const Tensor& grad_out, const Tensor& input, IntList normalized_shape, const Tensor& /*mean*/,
    const Tensor& /*rstd*/, const Tensor& weight, IntList output_mask) {
  const char* op = "native_layer_norm_backward";
  check_trailing(input, normalized_shape, op);
  check_mask(output_mask, 3, op);
  check_gradient(grad_out, input, op);
  const Tensor& parameter = weight.defined() ? weight : input;
  return {unwanted_or(like(input), output_mask, 0),
          unwanted_or(like(parameter, to_dims(normalized_shape)), output_mask, 1),
          unwanted_or(like(parameter, to_dims(normalized_shape)), output_mask, 2)};
}

std::tuple<TensorSpec, TensorSpec> native_rms_norm(const Tensor& input, IntList normalized_shape,
                                                   const Tensor& weight, double /*eps*/) {
  check_floating(input, "rms_norm");
  check_trailing(input, normalized_shape, "rms_norm");
  check_parameter(weight, "weight", normalized_shape, input, "rms_norm");
  return {spec_like(input), row_statistics(input, normalized_shape)};
}

std::tuple<TensorSpec, TensorSpec> native_rms_norm_backward(
    const Tensor& grad_out, const Tensor& input, IntList normalized_shape, const Tensor& /*rstd*/,
    const Tensor& weight, IntList output_mask) {
  const char* op = "native_rms_norm_backward";
  check_floating(input, op);
  check_trailing(input, normalized_shape, op);
  check_mask(output_mask, 2, op);
  check_gradient(grad_out, input, op);
  const Tensor& parameter = weight.defined() ? weight : input;
  return {unwanted_or(like(input), output_mask, 0),
          unwanted_or(like(parameter, to_dims(normalized_shape)), output_mask, 1)};
}

std::tuple<TensorSpec, TensorSpec, TensorSpec> batch_norm_training(const Tensor& input,
                                                                   const Tensor& weight,
                                                                   const Tensor& bias,
                                                                   double /*eps*/) {
  const int64_t channels = check_channels(input, "batch_norm");
  check_parameter(weight, "weight", channels, input, "batch_norm");
  check_parameter(bias, "bias", channels, input, "batch_norm");
  const TensorSpec stats{Dims{channels}, wide_type(input.dtype()), input.device(), {}};
  return {like(input), stats, stats};
}

std::tuple<TensorSpec, TensorSpec, TensorSpec> batch_norm_training_backward(
    const Tensor& grad_out, const Tensor& input, const Tensor& weight, const Tensor& /*mean*/,
    const Tensor& /*var*/, double /*eps*/, IntList output_mask) {
  const char* op = "batch_norm_training_backward";
  const int64_t channels = check_channels(input, op);
  check_mask(output_mask, 3, op);
  check_gradient(grad_out, input, op);
  const Tensor& parameter = weight.defined() ? weight : input;
  return {unwanted_or(like(input), output_mask, 0),
          unwanted_or(like(parameter, {channels}), output_mask, 1),
          unwanted_or(like(parameter, {channels}), output_mask, 2)};
}

std::tuple<TensorSpec, TensorSpec, TensorSpec> native_group_norm(const Tensor& input,
                                                                 const Tensor& weight,
                                                                 const Tensor& bias, int64_t group,
                                                                 double /*eps*/) {
  const int64_t channels = check_groups(input, group, "group_norm");
  check_parameter(weight, "weight", channels, input, "group_norm");
  check_parameter(bias, "bias", channels, input, "group_norm");
  const TensorSpec stats{
      Dims{input.sizes()[0], group}, wide_type(input.dtype()), input.device(), {}};
  return {like(input), stats, stats};
}

std::tuple<TensorSpec, TensorSpec, TensorSpec> native_group_norm_backward(
    const Tensor& grad_out, const Tensor& input, const Tensor& /*mean*/, const Tensor& /*rstd*/,
    const Tensor& weight, int64_t group, IntList output_mask) {
  const char* op = "native_group_norm_backward";
  const int64_t channels = check_groups(input, group, op);
  check_mask(output_mask, 3, op);
  check_gradient(grad_out, input, op);
  const Tensor& parameter = weight.defined() ? weight : input;
  return {unwanted_or(like(input), output_mask, 0),
          unwanted_or(like(parameter, {channels}), output_mask, 1),
          unwanted_or(like(parameter, {channels}), output_mask, 2)};
}

}  // namespace shape

namespace composite {

std::tuple<Tensor, Tensor, Tensor> native_layer_norm(const Tensor& input, IntList normalized_shape,
                                                     const Tensor& weight, const Tensor& bias,
                                                     double eps) {
  const Tensor x = widened(input);
  const Dims dims = last_dims(normalized_shape);
  auto [var, mean] = mytorch::var_mean(x, as_list(dims), 0, true);
  const Tensor rstd = mytorch::rsqrt(mytorch::add(var, eps));
  const Tensor normal = mytorch::mul(mytorch::sub(x, mean), rstd);
  return {affine(normal, widened(weight), widened(bias)).to(input.dtype()), mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(
    const Tensor& grad_out, const Tensor& input, IntList normalized_shape, const Tensor& mean,
    const Tensor& rstd, const Tensor& weight, IntList output_mask) {
  const auto terms = normalization::layer_norm_terms(input, normalized_shape, mean, rstd, weight);
  const auto [dx, dw, db] = normalization::backward(terms, widened(grad_out), output_mask[0] != 0,
                                                    output_mask[1] != 0, output_mask[2] != 0);
  const ScalarType type = (weight.defined() ? weight : input).dtype();
  return {or_empty(dx, input.sizes(), input.dtype(), input.device()),
          or_empty(dw, normalized_shape, type, input.device()),
          or_empty(db, normalized_shape, type, input.device())};
}

Tensor layer_norm(const Tensor& input, IntList normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps, bool /*cudnn_enable*/) {
  return std::get<0>(mytorch::native_layer_norm(input, normalized_shape, weight, bias, eps));
}

std::tuple<Tensor, Tensor> native_rms_norm(const Tensor& input, IntList normalized_shape,
                                           const Tensor& weight, double eps) {
  const Tensor x = widened(input);
  const Dims dims = last_dims(normalized_shape);
  const Tensor square = mytorch::mean(mytorch::mul(x, x), as_list(dims), true);
  const Tensor rstd = mytorch::rsqrt(mytorch::add(square, eps));
  return {affine(mytorch::mul(x, rstd), widened(weight), {}).to(input.dtype()), rstd};
}

std::tuple<Tensor, Tensor> native_rms_norm_backward(const Tensor& grad_out, const Tensor& input,
                                                    IntList normalized_shape, const Tensor& rstd,
                                                    const Tensor& weight, IntList output_mask) {
  const auto terms = normalization::layer_norm_terms(input, normalized_shape, {}, rstd, weight);
  const auto [dx, dw, db] = normalization::backward(terms, widened(grad_out), output_mask[0] != 0,
                                                    output_mask[1] != 0, false);
  const ScalarType type = (weight.defined() ? weight : input).dtype();
  return {or_empty(dx, input.sizes(), input.dtype(), input.device()),
          or_empty(dw, normalized_shape, type, input.device())};
}

Tensor rms_norm(const Tensor& input, IntList normalized_shape, const Tensor& weight,
                std::optional<double> eps) {
  const double epsilon = input.dtype() == kFloat64    ? std::numeric_limits<double>::epsilon()
                         : input.dtype() == kFloat32  ? std::numeric_limits<float>::epsilon()
                         : input.dtype() == kBFloat16 ? 0x1p-7
                                                      : 0x1p-10;
  return std::get<0>(
      mytorch::native_rms_norm(input, normalized_shape, weight, eps.value_or(epsilon)));
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_training(const Tensor& input, const Tensor& weight,
                                                       const Tensor& bias, double eps) {
  const int64_t ndim = input.dim();
  const Tensor x = widened(input);
  const Dims dims = all_but_channels(ndim);
  auto [var, mean] = mytorch::var_mean(x, as_list(dims), 0, true);
  const Tensor normal = mytorch::mul(mytorch::sub(x, mean), mytorch::rsqrt(mytorch::add(var, eps)));
  return {affine(normal, normalization::per_channel(widened(weight), ndim),
                 normalization::per_channel(widened(bias), ndim))
              .to(input.dtype()),
          mean.reshape(-1), var.reshape(-1)};
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_training_backward(
    const Tensor& grad_out, const Tensor& input, const Tensor& weight, const Tensor& mean,
    const Tensor& var, double eps, IntList output_mask) {
  const auto terms = normalization::batch_norm_terms(input, mean, var, weight, eps);
  const auto [dx, dw, db] = normalization::backward(terms, widened(grad_out), output_mask[0] != 0,
                                                    output_mask[1] != 0, output_mask[2] != 0);
  const ScalarType type = (weight.defined() ? weight : input).dtype();
  return {or_empty(dx, input.sizes(), input.dtype(), input.device()),
          or_empty(dw, mean.sizes(), type, input.device()),
          or_empty(db, mean.sizes(), type, input.device())};
}

std::tuple<Tensor, Tensor, Tensor> native_batch_norm(const Tensor& input, const Tensor& weight,
                                                     const Tensor& bias, const Tensor& running_mean,
                                                     const Tensor& running_var, bool training,
                                                     double momentum, double eps) {
  const int64_t channels = check_channels(input, "batch_norm");
  check_parameter(weight, "weight", channels, input, "batch_norm");
  check_parameter(bias, "bias", channels, input, "batch_norm");
  check_parameter(running_mean, "running_mean", channels, input, "batch_norm");
  check_parameter(running_var, "running_var", channels, input, "batch_norm");
  if (training) {
    auto [out, mean, var] = mytorch::batch_norm_training(input, weight, bias, eps);
    if (input.numel() != 0) {
      update_running(running_mean, mean, momentum);
      update_running(running_var, mytorch::mul(var.detach(), unbiasing(input.numel() / channels)),
                     momentum);
    }
    return {out, mean, mytorch::rsqrt(mytorch::add(var, eps))};
  }
  if (!running_mean.defined() || !running_var.defined()) {
    fail(ErrorCode::kValue,
         "[batch_norm] running_mean and running_var must be given where training is false");
  }
  // Both scale and shift are of one element per channel, so the input is read once.
  const int64_t ndim = input.dim();
  const Tensor invstd = mytorch::rsqrt(mytorch::add(widened(running_var), eps));
  const Tensor scale = weight.defined() ? mytorch::mul(invstd, widened(weight)) : invstd;
  const Tensor moved = mytorch::mul(widened(running_mean), scale);
  const Tensor shift =
      bias.defined() ? mytorch::sub(widened(bias), moved) : mytorch::mul(moved, -1);
  const Tensor out = mytorch::addcmul(normalization::per_channel(shift, ndim), widened(input),
                                      normalization::per_channel(scale, ndim));
  const Tensor none = mytorch::empty(0, wide_type(input.dtype()), input.device());
  return {out.to(input.dtype()), none, none};
}

Tensor batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var, bool training,
                  double momentum, double eps, bool /*cudnn_enabled*/) {
  return std::get<0>(mytorch::native_batch_norm(input, weight, bias, running_mean, running_var,
                                                training, momentum, eps));
}

std::tuple<Tensor, Tensor, Tensor> native_group_norm(const Tensor& input, const Tensor& weight,
                                                     const Tensor& bias, int64_t group,
                                                     double eps) {
  const int64_t n = input.sizes()[0], width = input.sizes()[1] / group * plane_of(input);
  const auto [normal, mean, rstd] =
      mytorch::native_layer_norm(widened(input).reshape({n, group, width}), width, {}, {}, eps);
  const Tensor out = affine(normal.reshape(input.sizes()),
                            normalization::per_channel(widened(weight), input.dim()),
                            normalization::per_channel(widened(bias), input.dim()))
                         .to(input.dtype());
  return {grads::in_layout_of(out, input.sizes(), input.strides()), mean.reshape({n, group}),
          rstd.reshape({n, group})};
}

// That of input is the one of a layer norm for grad * weight.
std::tuple<Tensor, Tensor, Tensor> native_group_norm_backward(
    const Tensor& grad_out, const Tensor& input, const Tensor& mean, const Tensor& rstd,
    const Tensor& weight, int64_t group, IntList output_mask) {
  const auto terms = normalization::group_norm_terms(input, mean, rstd, weight, group);
  const Tensor grad = widened(grad_out).reshape(terms.x.sizes());
  Tensor dx;
  if (output_mask[0] != 0) {
    const Tensor h = weight.defined() ? mytorch::mul(grad, terms.weight) : grad;
    const auto row = [&](const Tensor& x, int64_t length) {
      return x.reshape({input.sizes()[0], group, length});
    };
    const int64_t width = terms.x.sizes()[2] * terms.x.sizes()[3];
    dx = std::get<0>(mytorch::native_layer_norm_backward(row(h, width), row(terms.x, width), width,
                                                         row(terms.mean, 1), row(terms.rstd, 1), {},
                                                         {1, 0, 0}));
  }
  const auto [none, dw, db] =
      normalization::backward(terms, grad, false, output_mask[1] != 0, output_mask[2] != 0);
  const ScalarType type = (weight.defined() ? weight : input).dtype();
  const int64_t channels = input.sizes()[1];
  dx = or_empty(dx, input.sizes(), input.dtype(), input.device());
  return {dx.numel() == 0 ? dx : grads::in_layout_of(dx, input.sizes(), input.strides()),
          or_empty(dw, channels, type, input.device()),
          or_empty(db, channels, type, input.device())};
}

Tensor group_norm(const Tensor& input, int64_t num_groups, const Tensor& weight, const Tensor& bias,
                  double eps, bool /*cudnn_enabled*/) {
  return std::get<0>(mytorch::native_group_norm(input, weight, bias, num_groups, eps));
}

Tensor instance_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                     const Tensor& running_mean, const Tensor& running_var, bool use_input_stats,
                     double momentum, double eps, bool /*cudnn_enabled*/) {
  const int64_t channels = check_channels(input, "instance_norm");
  if (!use_input_stats) {
    return mytorch::batch_norm(input, weight, bias, running_mean, running_var, false, momentum,
                               eps);
  }
  check_parameter(weight, "weight", channels, input, "instance_norm");
  check_parameter(bias, "bias", channels, input, "instance_norm");
  check_parameter(running_mean, "running_mean", channels, input, "instance_norm");
  check_parameter(running_var, "running_var", channels, input, "instance_norm");
  // Each channel of each sample is a channel of one larger sample.
  const int64_t n = input.sizes()[0];
  Dims sizes = to_dims(input.sizes());
  sizes[0] = 1;
  sizes[1] = n * channels;
  auto [normal, mean, var] =
      mytorch::batch_norm_training(widened(input).reshape(as_list(sizes)), {}, {}, eps);
  if (input.numel() != 0) {
    const auto average = [&](const Tensor& x) {
      return mytorch::mean(x.detach().reshape({n, channels}), 0);
    };
    const int64_t plane = input.numel() / (n * channels);
    update_running(running_mean, average(mean), momentum);
    update_running(running_var, mytorch::mul(average(var), unbiasing(plane)), momentum);
  }
  return affine(normal.reshape(input.sizes()),
                normalization::per_channel(widened(weight), input.dim()),
                normalization::per_channel(widened(bias), input.dim()))
      .to(input.dtype());
}

}  // namespace composite
}  // namespace mytorch
