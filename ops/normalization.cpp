// Layer, root-mean-square, batch, group and instance normalization: out = (x - mean) * rstd *
// weight + bias. 16-bit types compute in float32.
#include <algorithm>
#include <cmath>
#include <limits>

#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/addcmul.h"
#include "mytorch/ops/batch_norm.h"
#include "mytorch/ops/batch_norm_training.h"
#include "mytorch/ops/batch_norm_training_backward.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/hypot.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/native_add_layer_norm.h"
#include "mytorch/ops/native_add_layer_norm_backward.h"
#include "mytorch/ops/native_add_rms_norm.h"
#include "mytorch/ops/native_add_rms_norm_backward.h"
#include "mytorch/ops/native_group_norm_backward.h"
#include "mytorch/ops/native_layer_norm.h"
#include "mytorch/ops/native_layer_norm_backward.h"
#include "mytorch/ops/native_rms_norm.h"
#include "mytorch/ops/native_rms_norm_backward.h"
#include "mytorch/ops/std_mean.h"
#include "mytorch/ops/var_mean.h"
#include "ops/creation.h"
#include "ops/geometry.h"
#include "ops/gradients.h"
#include "ops/precision.h"

namespace mytorch {
namespace {

void check_trailing(const Tensor& input, IntList normalized_shape, const char* op) {
  const size_t n = normalized_shape.size();
  const IntList sizes = input.sizes();
  check_shape(n != 0 && sizes.size() >= n &&
                  IntList(sizes.data() + sizes.size() - n, n) == normalized_shape,
              op, "input of shape ", sizes, " does not end in normalized_shape ", normalized_shape);
}

// Checks that optional parameters have shape `sizes` and the input's type or its compute type.
void check_parameters(std::initializer_list<std::pair<const char*, const Tensor&>> parameters,
                      IntList sizes, const Tensor& input, const char* op) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.defined()) continue;
    check_shape(parameter.sizes() == sizes, op, name, " has shape ", parameter.sizes(),
                ", but input of shape ", input.sizes(), " takes ", sizes);
    check_type(parameter.dtype() == input.dtype() || parameter.dtype() == wide_type(input.dtype()),
               op, name, " is ", parameter.dtype(), ", but input is ", input.dtype());
  }
}

int64_t check_channels(const Tensor& input, const char* op) {
  check_floating(input, "input", op);
  check_shape(input.dim() >= 2, op, "input has shape ", input.sizes(), ": it must be (N, C, ...)");
  return input.sizes()[1];
}

// Returns the number of channels, which must be divisible by the number of groups.
int64_t check_groups(const Tensor& input, int64_t groups, const char* op) {
  const int64_t channels = check_channels(input, op);
  check_value(groups > 0 && channels % groups == 0, op, channels, " channels do not divide into ",
              groups, " groups");
  return channels;
}

// Returns the number of elements of one channel of one sample.
int64_t plane_of(const Tensor& input) {
  return checked_product({input.sizes().data() + 2, static_cast<size_t>(input.dim() - 2)},
                         "group_norm");
}

// Returns x * weight + bias; both parameters are optional.
Tensor affine(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (weight.defined() && bias.defined()) return bias.addcmul(x, weight);
  if (weight.defined()) return x * weight;
  return bias.defined() ? x + bias : x;
}

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

Dims last_dims(IntList shape) {
  Dims dims;
  for (int64_t d = -static_cast<int64_t>(shape.size()); d < 0; ++d) dims.push_back(d);
  return dims;
}

// Returns 1 / sqrt(deviation^2 + eps), where the square may exceed the type's range.
Tensor inverse_deviation(const Tensor& deviation, double eps) {
  const Tensor least =
      mytorch::full(IntList(), std::sqrt(eps), deviation.dtype(), deviation.device());
  return mytorch::hypot(deviation, least).reciprocal();
}

double epsilon_of(ScalarType type) {
  return type == kFloat64    ? std::numeric_limits<double>::epsilon()
         : type == kFloat32  ? std::numeric_limits<float>::epsilon()
         : type == kBFloat16 ? 0x1p-7
                             : 0x1p-10;
}

void check_residual(const Tensor& input, const Tensor& residual, const char* op) {
  check_shape(input.sizes() == residual.sizes(), op, "input has shape ", input.sizes(),
              " and residual ", residual.sizes(), ": they must be equal");
  check_same_type(input, "input", residual, "residual", op);
}

void check_grad_sum(const Tensor& grad_sum, const Tensor& sum, const char* op) {
  check_shape(grad_sum.sizes() == sum.sizes(), op, "grad_sum has shape ", grad_sum.sizes(),
              ", but sum has shape ", sum.sizes());
  check_same_type(grad_sum, "grad_sum", sum, "sum", op);
}

// Returns the specs of the gradients of the input and of parameters of shape `sizes`, in the
// parameters' type. A gradient whose mask is 0 has no elements.
template <size_t n>
Specs<n> gradient_specs(const Tensor& grad_out, const Tensor& input, const Tensor& weight,
                        IntList sizes, IntList mask, const char* op) {
  check_value(mask.size() == n, op, "output_mask has ", mask.size(), " values, not ", n);
  check_shape(grad_out.sizes() == input.sizes(), op, "grad_out has shape ", grad_out.sizes(),
              ", but input has shape ", input.sizes());
  check_same_type(grad_out, "grad_out", input, "input", op);
  check_parameters({{"weight", weight}}, sizes, input, op);
  std::array<TensorSpec, n> specs;
  for (size_t i = 0; i < n; ++i) {
    specs[i] = i == 0 ? like(input) : like(weight.defined() ? weight : input, to_dims(sizes));
    if (mask[i] == 0) specs[i].sizes = {0};
  }
  return std::tuple_cat(specs);
}

// Returns the spec of the statistics of rows: the last dimensions have size 1.
TensorSpec row_statistics(const Tensor& input, IntList normalized_shape) {
  Dims sizes = to_dims(input.sizes());
  std::fill(sizes.end() - normalized_shape.size(), sizes.end(), 1);
  return like(input, std::move(sizes), wide_type(input.dtype()));
}

TensorSpec channel_statistics(const Tensor& input, int64_t channels) {
  return like(input, {channels}, wide_type(input.dtype()));
}

TensorSpec group_statistics(const Tensor& input, int64_t group) {
  return like(input, {input.sizes()[0], group}, wide_type(input.dtype()));
}

// Checks the statistics that a gradient takes from the forward operator.
void check_statistics(std::initializer_list<std::pair<const char*, const Tensor&>> statistics,
                      const TensorSpec& expected, const Tensor& input, const char* op) {
  for (const auto& [name, each] : statistics) {
    check_shape(each.sizes() == as_list(expected.sizes), op, name, " has shape ", each.sizes(),
                ", but input of shape ", input.sizes(), " takes ", as_list(expected.sizes));
    check_type(each.dtype() == expected.dtype, op, name, " is ", each.dtype(),
               ", but for input of ", input.dtype(), " it is ", expected.dtype);
  }
}

// Returns one value per channel, shaped for dimension 1 of an input of `ndim` dimensions. `x` may
// be undefined.
Tensor per_channel(const Tensor& x, int64_t ndim) {
  if (!x.defined()) return x;
  Dims sizes(ndim, 1);
  sizes[1] = x.numel();
  return x.reshape(as_list(sizes));
}

// Returns `x`, which has the input's shape, scaled and shifted by channel, in the input's type.
Tensor affine_by_channel(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Tensor& input) {
  return affine(x, per_channel(widened(weight), x.dim()), per_channel(widened(bias), x.dim()))
      .to(input.dtype());
}

// ---- differentiation of all kinds of normalization ----

// All tensors have the compute type and shapes that broadcast to that of x.
struct Terms {
  Tensor x;       // of a group norm: (N, groups, channels of a group, elements of a plane)
  Tensor mean;    // undefined (root mean square): 0
  Tensor rstd;    // 1 / sqrt(var + eps), var the mean of (x - mean)^2
  Tensor weight;  // undefined: 1
  Dims over;      // the dimensions that mean and rstd are taken over
  Dims others;    // the dimensions that the gradients of weight and bias are summed over

  Tensor centered() const { return mean.defined() ? x - mean : x; }
  Tensor x_hat() const { return centered() * rstd; }
  double count() const {
    int64_t n = 1;
    for (const int64_t d : over) n *= x.sizes()[d];
    return static_cast<double>(n);
  }
};

Terms layer_norm_terms(const Tensor& input, IntList normalized_shape, const Tensor& mean,
                       const Tensor& rstd, const Tensor& weight) {
  Terms terms{widened(input), widened(mean), widened(rstd), widened(weight), {}, {}};
  const int64_t lead = input.dim() - static_cast<int64_t>(normalized_shape.size());
  for (int64_t d = 0; d < input.dim(); ++d) (d < lead ? terms.others : terms.over).push_back(d);
  return terms;
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

// `mean` and `rstd` have shape (N, groups), `weight` one element per channel.
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

// Adds two tensors. An undefined tensor is a zero without cost.
Tensor plus(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? a + b : a;
}

Tensor times(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() ? a * b : Tensor();
}

// An undefined weight means 1.
Tensor weighted(const Tensor& x, const Tensor& weight) {
  return weight.defined() && x.defined() ? x * weight : x;
}

Tensor reshaped(const Tensor& x, const Tensor& like) {
  return x.defined() && like.defined() ? x.reshape(like.sizes()) : Tensor();
}

Tensor if_wanted(const Tensor& x, bool wanted) { return wanted ? x : Tensor(); }

// Returns v without its components along x_hat and, if there is a mean, along 1.
Tensor projected(const Tensor& v, const Tensor& x_hat, const Terms& terms) {
  const IntList over = as_list(terms.over);
  const Tensor along = x_hat * (v * x_hat).mean(over, true);
  const Tensor rest = terms.mean.defined() ? v - v.mean(over, true) : v;
  return rest - along;
}

Tensor sum_others(const Tensor& x, const Terms& terms) {
  return terms.others.empty() ? x : x.sum(as_list(terms.others), true);
}

// Returns the gradient through the mean, and through a statistic whose derivative is factor / n *
// (x - mean).
Tensor through_statistics(const Terms& terms, const Tensor& grad_mean, const Tensor& grad_spread,
                          double factor) {
  const double n = terms.count();
  Tensor result;
  if (grad_mean.defined()) result = grad_mean * (1 / n);
  if (grad_spread.defined()) {
    result = plus(result, grad_spread * (factor / n) * terms.centered());
  }
  return result.expand(terms.x.sizes());
}

// Returns the gradient through the mean and through rstd: d rstd / dx = -rstd^3 * (x - mean) / n.
Tensor through_rstd(const Terms& terms, const Tensor& grad_mean, const Tensor& grad_rstd) {
  const Tensor cube = terms.rstd * terms.rstd * terms.rstd;
  return through_statistics(terms, grad_mean, times(grad_rstd, cube), -1);
}

// Returns the gradients of x (also through mean and rstd), weight and bias, given that of the
// output; those not wanted are undefined. The gradients of parameters keep the summed dimensions,
// with size 1.
Tensors<3> backward(const Terms& terms, const Tensor& grad, bool want_x, bool want_weight,
                    bool want_bias) {
  Tensor dx, dw, db;
  const Tensor x_hat = want_x || want_weight ? terms.x_hat() : Tensor();
  if (want_x) dx = terms.rstd * projected(weighted(grad, terms.weight), x_hat, terms);
  if (want_weight) dw = sum_others(grad * x_hat, terms);
  if (want_bias) db = sum_others(grad, terms);
  return {dx, dw, db};
}

// Returns the gradients as results of a backward operator: in the shapes and types of `input` and
// of parameters of shape `sizes`.
Tensors<3> as_results(const Tensors<3>& gradients, const Tensor& input, const Tensor& weight,
                      IntList sizes) {
  const auto result = [&](const Tensor& x, IntList shape, ScalarType dtype) {
    return x.defined() ? x.reshape(shape).to(dtype) : mytorch::empty(0, dtype, input.device());
  };
  const auto& [dx, dw, db] = gradients;
  const ScalarType type = (weight.defined() ? weight : input).dtype();
  return {result(dx, input.sizes(), input.dtype()), result(dw, sizes, type),
          result(db, sizes, type)};
}

// The gradients of backward() itself, given those of its results, any of which may be undefined.
// grad, x, mean, rstd and weight are treated as independent.
struct DoubleGradients {
  Tensor grad, x, mean, rstd, weight;
};

// Differentiates three results of backward() once more: with h = grad * weight, dx = rstd * (h -
// mean(h) - x_hat * mean(h * x_hat)), the sum of grad * x_hat, and the sum of grad. v is grad_x.
DoubleGradients double_backward(const Terms& terms, const Tensor& grad, const Tensor& v,
                                const Tensor& grad_weight, const Tensor& grad_bias) {
  const IntList over = as_list(terms.over);
  const Tensor x_hat = terms.x_hat();
  const Tensor h = weighted(grad, terms.weight);
  DoubleGradients result;
  Tensor d_x_hat = times(grad_weight, grad);
  result.grad = plus(times(grad_weight, x_hat), grad_bias);
  if (v.defined()) {
    const Tensor d_h = terms.rstd * projected(v, x_hat, terms);
    result.grad = plus(weighted(d_h, terms.weight), result.grad);
    if (terms.weight.defined()) result.weight = sum_others(grad * d_h, terms);
    const Tensor h_along = (h * x_hat).mean(over, true);
    const Tensor v_along = (v * x_hat).mean(over, true);
    const Tensor both = v * h_along + h * v_along;
    d_x_hat = plus(-(terms.rstd * both), d_x_hat);
    result.rstd = (v * projected(h, x_hat, terms)).sum(over, true);
  }
  if (d_x_hat.defined()) {
    result.x = d_x_hat * terms.rstd;
    if (terms.mean.defined()) result.mean = -result.x.sum(over, true);
    result.rstd = plus(result.rstd, (d_x_hat * terms.centered()).sum(over, true));
  }
  if (result.grad.defined()) result.grad = result.grad.expand(terms.x.sizes());
  return result;
}

// Returns the i-th incoming gradient in the compute type; undefined if the mask excluded that
// result.
Tensor incoming(const Tensor* grads, IntList mask, size_t i) {
  return widened(if_wanted(grads[i], mask[i] != 0));
}

// Returns the wanted gradients among those that a backward operator returned.
Tensors<3> only(const bool* wanted, const Tensors<3>& all) {
  const auto& [x, w, b] = all;
  return {if_wanted(x, wanted[0]), if_wanted(w, wanted[1]), if_wanted(b, wanted[2])};
}

}  // namespace

namespace shape {

Specs<3> native_layer_norm(const Tensor& input, IntList normalized_shape, const Tensor& weight,
                           const Tensor& bias, double /*eps*/) {
  check_floating(input, "input", "layer_norm");
  check_trailing(input, normalized_shape, "layer_norm");
  check_parameters({{"weight", weight}, {"bias", bias}}, normalized_shape, input, "layer_norm");
  const TensorSpec stats = row_statistics(input, normalized_shape);
  return {spec_like(input), stats, stats};
}

Specs<3> native_layer_norm_backward(const Tensor& grad_out, const Tensor& input,
                                    IntList normalized_shape, const Tensor& mean,
                                    const Tensor& rstd, const Tensor& weight, IntList output_mask) {
  const char* op = "native_layer_norm_backward";
  check_floating(input, "input", op);
  check_trailing(input, normalized_shape, op);
  check_statistics({{"mean", mean}, {"rstd", rstd}}, row_statistics(input, normalized_shape), input,
                   op);
  return gradient_specs<3>(grad_out, input, weight, normalized_shape, output_mask, op);
}

Specs<2> native_rms_norm(const Tensor& input, IntList normalized_shape, const Tensor& weight,
                         double /*eps*/) {
  check_floating(input, "input", "rms_norm");
  check_trailing(input, normalized_shape, "rms_norm");
  check_parameters({{"weight", weight}}, normalized_shape, input, "rms_norm");
  return {spec_like(input), row_statistics(input, normalized_shape)};
}

Specs<2> native_rms_norm_backward(const Tensor& grad_out, const Tensor& input,
                                  IntList normalized_shape, const Tensor& rstd,
                                  const Tensor& weight, IntList output_mask) {
  const char* op = "native_rms_norm_backward";
  check_floating(input, "input", op);
  check_trailing(input, normalized_shape, op);
  check_statistics({{"rstd", rstd}}, row_statistics(input, normalized_shape), input, op);
  return gradient_specs<2>(grad_out, input, weight, normalized_shape, output_mask, op);
}

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

Specs<3> native_group_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                           int64_t group, double /*eps*/) {
  const int64_t channels = check_groups(input, group, "group_norm");
  check_parameters({{"weight", weight}, {"bias", bias}}, channels, input, "group_norm");
  const TensorSpec stats = group_statistics(input, group);
  return {like(input), stats, stats};
}

Specs<3> native_group_norm_backward(const Tensor& grad_out, const Tensor& input, const Tensor& mean,
                                    const Tensor& rstd, const Tensor& weight, int64_t group,
                                    IntList output_mask) {
  const char* op = "native_group_norm_backward";
  const int64_t channels = check_groups(input, group, op);
  check_statistics({{"mean", mean}, {"rstd", rstd}}, group_statistics(input, group), input, op);
  return gradient_specs<3>(grad_out, input, weight, channels, output_mask, op);
}

Specs<4> native_add_layer_norm(const Tensor& input, const Tensor& residual,
                               IntList normalized_shape, const Tensor& weight, const Tensor& bias,
                               double /*eps*/) {
  const char* op = "add_layer_norm";
  check_floating(input, "input", op);
  check_residual(input, residual, op);
  check_trailing(input, normalized_shape, op);
  check_parameters({{"weight", weight}, {"bias", bias}}, normalized_shape, input, op);
  const TensorSpec stats = row_statistics(input, normalized_shape);
  return {spec_like(input), spec_like(input), stats, stats};
}

Specs<3> native_add_layer_norm_backward(const Tensor& grad_out, const Tensor& grad_sum,
                                        const Tensor& sum, IntList normalized_shape,
                                        const Tensor& mean, const Tensor& rstd,
                                        const Tensor& weight, IntList output_mask) {
  const char* op = "native_add_layer_norm_backward";
  check_floating(sum, "sum", op);
  check_trailing(sum, normalized_shape, op);
  check_statistics({{"mean", mean}, {"rstd", rstd}}, row_statistics(sum, normalized_shape), sum,
                   op);
  check_grad_sum(grad_sum, sum, op);
  return gradient_specs<3>(grad_out, sum, weight, normalized_shape, output_mask, op);
}

Specs<3> native_add_rms_norm(const Tensor& input, const Tensor& residual, IntList normalized_shape,
                             const Tensor& weight, double /*eps*/) {
  const char* op = "add_rms_norm";
  check_floating(input, "input", op);
  check_residual(input, residual, op);
  check_trailing(input, normalized_shape, op);
  check_parameters({{"weight", weight}}, normalized_shape, input, op);
  return {spec_like(input), spec_like(input), row_statistics(input, normalized_shape)};
}

Specs<2> native_add_rms_norm_backward(const Tensor& grad_out, const Tensor& grad_sum,
                                      const Tensor& sum, IntList normalized_shape,
                                      const Tensor& rstd, const Tensor& weight,
                                      IntList output_mask) {
  const char* op = "native_add_rms_norm_backward";
  check_floating(sum, "sum", op);
  check_trailing(sum, normalized_shape, op);
  check_statistics({{"rstd", rstd}}, row_statistics(sum, normalized_shape), sum, op);
  check_grad_sum(grad_sum, sum, op);
  return gradient_specs<2>(grad_out, sum, weight, normalized_shape, output_mask, op);
}

}  // namespace shape

namespace composite {

Tensors<3> native_layer_norm(const Tensor& input, IntList normalized_shape, const Tensor& weight,
                             const Tensor& bias, double eps) {
  const Tensor x = widened(input);
  const Dims dims = last_dims(normalized_shape);
  auto [deviation, mean] = mytorch::std_mean(x, as_list(dims), 0, true);
  const Tensor rstd = inverse_deviation(deviation, eps);
  const Tensor normal = (x - mean) * rstd;
  return {affine(normal, widened(weight), widened(bias)).to(input.dtype()), mean, rstd};
}

Tensors<3> native_layer_norm_backward(const Tensor& grad_out, const Tensor& input,
                                      IntList normalized_shape, const Tensor& mean,
                                      const Tensor& rstd, const Tensor& weight, IntList mask) {
  const Terms terms = layer_norm_terms(input, normalized_shape, mean, rstd, weight);
  return as_results(backward(terms, widened(grad_out), mask[0] != 0, mask[1] != 0, mask[2] != 0),
                    input, weight, normalized_shape);
}

Tensors<2> native_rms_norm(const Tensor& input, IntList normalized_shape, const Tensor& weight,
                           double eps) {
  const Tensor x = widened(input);
  const Dims dims = last_dims(normalized_shape);
  const double root = std::sqrt(static_cast<double>(checked_product(normalized_shape, "rms_norm")));
  const Tensor size = mytorch::linalg_vector_norm(x, 2, as_list(dims), true) / root;
  const Tensor rstd = inverse_deviation(size, eps);
  return {affine(x * rstd, widened(weight), {}).to(input.dtype()), rstd};
}

Tensors<2> native_rms_norm_backward(const Tensor& grad_out, const Tensor& input,
                                    IntList normalized_shape, const Tensor& rstd,
                                    const Tensor& weight, IntList mask) {
  const Terms terms = layer_norm_terms(input, normalized_shape, {}, rstd, weight);
  const auto [dx, dw, none] =
      as_results(backward(terms, widened(grad_out), mask[0] != 0, mask[1] != 0, false), input,
                 weight, normalized_shape);
  return {dx, dw};
}

Tensor rms_norm(const Tensor& input, IntList normalized_shape, const Tensor& weight,
                std::optional<double> eps) {
  return std::get<0>(mytorch::native_rms_norm(input, normalized_shape, weight,
                                              eps.value_or(epsilon_of(input.dtype()))));
}

Tensors<4> native_add_layer_norm(const Tensor& input, const Tensor& residual,
                                 IntList normalized_shape, const Tensor& weight, const Tensor& bias,
                                 double eps) {
  const Tensor sum = input + residual;
  auto [out, mean, rstd] = mytorch::native_layer_norm(sum, normalized_shape, weight, bias, eps);
  return {out, sum, mean, rstd};
}

Tensors<3> native_add_layer_norm_backward(const Tensor& grad_out, const Tensor& grad_sum,
                                          const Tensor& sum, IntList normalized_shape,
                                          const Tensor& mean, const Tensor& rstd,
                                          const Tensor& weight, IntList mask) {
  auto [dx, dw, db] = mytorch::native_layer_norm_backward(grad_out, sum, normalized_shape, mean,
                                                          rstd, weight, mask);
  return {mask[0] != 0 ? dx + grad_sum : dx, dw, db};
}

std::tuple<Tensor, Tensor> add_layer_norm(const Tensor& input, const Tensor& residual,
                                          IntList normalized_shape, const Tensor& weight,
                                          const Tensor& bias, double eps) {
  const auto results =
      mytorch::native_add_layer_norm(input, residual, normalized_shape, weight, bias, eps);
  return {std::get<0>(results), std::get<1>(results)};
}

Tensors<3> native_add_rms_norm(const Tensor& input, const Tensor& residual,
                               IntList normalized_shape, const Tensor& weight, double eps) {
  const Tensor sum = input + residual;
  auto [out, rstd] = mytorch::native_rms_norm(sum, normalized_shape, weight, eps);
  return {out, sum, rstd};
}

Tensors<2> native_add_rms_norm_backward(const Tensor& grad_out, const Tensor& grad_sum,
                                        const Tensor& sum, IntList normalized_shape,
                                        const Tensor& rstd, const Tensor& weight, IntList mask) {
  auto [dx, dw] =
      mytorch::native_rms_norm_backward(grad_out, sum, normalized_shape, rstd, weight, mask);
  return {mask[0] != 0 ? dx + grad_sum : dx, dw};
}

std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& input, const Tensor& residual,
                                        IntList normalized_shape, const Tensor& weight,
                                        std::optional<double> eps) {
  const auto results = mytorch::native_add_rms_norm(input, residual, normalized_shape, weight,
                                                    eps.value_or(epsilon_of(input.dtype())));
  return {std::get<0>(results), std::get<1>(results)};
}

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

Tensors<3> native_group_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                             int64_t group, double eps) {
  const int64_t n = input.sizes()[0], width = input.sizes()[1] / group * plane_of(input);
  const auto [normal, mean, rstd] =
      mytorch::native_layer_norm(widened(input).reshape({n, group, width}), width, {}, {}, eps);
  const Tensor out = affine_by_channel(normal.reshape(input.sizes()), weight, bias, input);
  return {grads::in_layout_of(out, input.sizes(), input.strides()), mean.reshape({n, group}),
          rstd.reshape({n, group})};
}

// The gradient of the input is that of a layer norm for grad * weight.
Tensors<3> native_group_norm_backward(const Tensor& grad_out, const Tensor& input,
                                      const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                                      int64_t group, IntList mask) {
  const Terms terms = group_norm_terms(input, mean, rstd, weight, group);
  const Tensor grad = widened(grad_out).reshape(terms.x.sizes());
  Tensors<3> gradients = backward(terms, grad, false, mask[1] != 0, mask[2] != 0);
  if (mask[0] != 0) {
    const auto row = [&](const Tensor& x, int64_t length) {
      return x.reshape({input.sizes()[0], group, length});
    };
    const int64_t width = terms.x.sizes()[2] * terms.x.sizes()[3];
    std::get<0>(gradients) = std::get<0>(mytorch::native_layer_norm_backward(
        row(weighted(grad, terms.weight), width), row(terms.x, width), width, row(terms.mean, 1),
        row(terms.rstd, 1), {}, {1, 0, 0}));
  }
  Tensors<3> results = as_results(gradients, input, weight, input.sizes()[1]);
  Tensor& dx = std::get<0>(results);
  if (dx.numel() != 0) dx = grads::in_layout_of(dx, input.sizes(), input.strides());
  return results;
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

Tensors<3> layer_norm_backward(const Tensor* grads, const Tensor& input, IntList normalized_shape,
                               const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                               const bool* wanted) {
  Tensors<3> result;
  if (grads[0].defined()) {
    result = only(wanted, mytorch::native_layer_norm_backward(
                              grads[0], input, normalized_shape, mean, rstd, weight,
                              {int64_t{wanted[0]}, int64_t{wanted[1]}, int64_t{wanted[2]}}));
  }
  if (wanted[0] && (grads[1].defined() || grads[2].defined())) {
    const Terms terms = layer_norm_terms(input, normalized_shape, mean, rstd, weight);
    Tensor& dx = std::get<0>(result);
    dx = plus(dx, through_rstd(terms, grads[1], grads[2]));
  }
  return result;
}

Tensors<5> layer_norm_double_backward(const Tensor* grads, const Tensor& grad_out,
                                      const Tensor& input, IntList normalized_shape,
                                      const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                                      IntList mask) {
  const Terms terms = layer_norm_terms(input, normalized_shape, mean, rstd, weight);
  const auto d = double_backward(terms, widened(grad_out), incoming(grads, mask, 0),
                                 incoming(grads, mask, 1), incoming(grads, mask, 2));
  return {d.grad, d.x, d.mean, d.rstd, reshaped(d.weight, weight)};
}

Tensors<2> rms_norm_backward(const Tensor* grads, const Tensor& input, IntList normalized_shape,
                             const Tensor& rstd, const Tensor& weight, const bool* wanted) {
  Tensor dx, dw;
  if (grads[0].defined()) {
    const auto [x, w] = mytorch::native_rms_norm_backward(
        grads[0], input, normalized_shape, rstd, weight, {int64_t{wanted[0]}, int64_t{wanted[1]}});
    dx = if_wanted(x, wanted[0]);
    dw = if_wanted(w, wanted[1]);
  }
  if (wanted[0] && grads[1].defined()) {
    const Terms terms = layer_norm_terms(input, normalized_shape, {}, rstd, weight);
    dx = plus(dx, through_rstd(terms, {}, grads[1]));
  }
  return {dx, dw};
}

Tensors<4> rms_norm_double_backward(const Tensor* grads, const Tensor& grad_out,
                                    const Tensor& input, IntList normalized_shape,
                                    const Tensor& rstd, const Tensor& weight, IntList mask) {
  const Terms terms = layer_norm_terms(input, normalized_shape, {}, rstd, weight);
  const auto d = double_backward(terms, widened(grad_out), incoming(grads, mask, 0),
                                 incoming(grads, mask, 1), {});
  return {d.grad, d.x, d.rstd, reshaped(d.weight, weight)};
}

// The input and the residual have the same gradient.
Tensors<4> add_layer_norm_backward(const Tensor* grads, const Tensor& sum, IntList normalized_shape,
                                   const Tensor& mean, const Tensor& rstd, const Tensor& weight,
                                   const bool* wanted) {
  const bool want[] = {wanted[0] || wanted[1], wanted[2], wanted[3]};
  Tensors<3> all;
  const Tensor of_norm[] = {grads[0], grads[2], grads[3]};
  if (grads[0].defined() && grads[1].defined() && want[0]) {
    all = only(want, mytorch::native_add_layer_norm_backward(
                         grads[0], grads[1], sum, normalized_shape, mean, rstd, weight,
                         {1, int64_t{want[1]}, int64_t{want[2]}}));
    const Tensor rest[] = {Tensor(), grads[2], grads[3]};
    const bool input_only[] = {true, false, false};
    Tensor& dx = std::get<0>(all);
    dx = plus(dx, std::get<0>(layer_norm_backward(rest, sum, normalized_shape, mean, rstd, weight,
                                                  input_only)));
  } else {
    all = layer_norm_backward(of_norm, sum, normalized_shape, mean, rstd, weight, want);
    if (want[0]) std::get<0>(all) = plus(std::get<0>(all), grads[1]);
  }
  const auto& [dx, dw, db] = all;
  return {if_wanted(dx, wanted[0]), if_wanted(dx, wanted[1]), dw, db};
}

Tensors<6> add_layer_norm_double_backward(const Tensor* grads, const Tensor& grad_out,
                                          const Tensor& sum, IntList normalized_shape,
                                          const Tensor& mean, const Tensor& rstd,
                                          const Tensor& weight, IntList mask) {
  auto [d_grad, d_sum, d_mean, d_rstd, d_weight] =
      layer_norm_double_backward(grads, grad_out, sum, normalized_shape, mean, rstd, weight, mask);
  return {d_grad, if_wanted(grads[0], mask[0] != 0), d_sum, d_mean, d_rstd, d_weight};
}

Tensors<3> add_rms_norm_backward(const Tensor* grads, const Tensor& sum, IntList normalized_shape,
                                 const Tensor& rstd, const Tensor& weight, const bool* wanted) {
  const bool want[] = {wanted[0] || wanted[1], wanted[2]};
  Tensor dx, dw;
  if (grads[0].defined() && grads[1].defined() && want[0]) {
    const auto [x, w] = mytorch::native_add_rms_norm_backward(
        grads[0], grads[1], sum, normalized_shape, rstd, weight, {1, int64_t{want[1]}});
    const Tensor rest[] = {Tensor(), grads[2]};
    const bool input_only[] = {true, false};
    dx = plus(
        x, std::get<0>(rms_norm_backward(rest, sum, normalized_shape, rstd, weight, input_only)));
    dw = if_wanted(w, want[1]);
  } else {
    const Tensor of_norm[] = {grads[0], grads[2]};
    std::tie(dx, dw) = rms_norm_backward(of_norm, sum, normalized_shape, rstd, weight, want);
    if (want[0]) dx = plus(dx, grads[1]);
  }
  return {if_wanted(dx, wanted[0]), if_wanted(dx, wanted[1]), dw};
}

Tensors<5> add_rms_norm_double_backward(const Tensor* grads, const Tensor& grad_out,
                                        const Tensor& sum, IntList normalized_shape,
                                        const Tensor& rstd, const Tensor& weight, IntList mask) {
  auto [d_grad, d_sum, d_rstd, d_weight] =
      rms_norm_double_backward(grads, grad_out, sum, normalized_shape, rstd, weight, mask);
  return {d_grad, if_wanted(grads[0], mask[0] != 0), d_sum, d_rstd, d_weight};
}

Tensors<3> group_norm_backward(const Tensor* grads, const Tensor& input, const Tensor& mean,
                               const Tensor& rstd, const Tensor& weight, int64_t group,
                               const bool* wanted) {
  Tensors<3> result;
  if (grads[0].defined()) {
    result = only(wanted, mytorch::native_group_norm_backward(
                              grads[0], input, mean, rstd, weight, group,
                              {int64_t{wanted[0]}, int64_t{wanted[1]}, int64_t{wanted[2]}}));
  }
  if (wanted[0] && (grads[1].defined() || grads[2].defined())) {
    const Terms terms = group_norm_terms(input, mean, rstd, weight, group);
    const Tensor through =
        through_rstd(terms, reshaped(grads[1], terms.rstd), reshaped(grads[2], terms.rstd));
    Tensor& dx = std::get<0>(result);
    dx = plus(dx, through.reshape(input.sizes()));
  }
  return result;
}

Tensors<5> group_norm_double_backward(const Tensor* grads, const Tensor& grad_out,
                                      const Tensor& input, const Tensor& mean, const Tensor& rstd,
                                      const Tensor& weight, int64_t group, IntList mask) {
  const Terms terms = group_norm_terms(input, mean, rstd, weight, group);
  const auto parameter = [&](size_t i) {
    const Tensor x = incoming(grads, mask, i);
    return x.defined() ? x.reshape({1, group, terms.x.sizes()[2], 1}) : x;
  };
  const auto d =
      double_backward(terms, reshaped(widened(grad_out), terms.x),
                      reshaped(incoming(grads, mask, 0), terms.x), parameter(1), parameter(2));
  return {reshaped(d.grad, input), reshaped(d.x, input), reshaped(d.mean, mean),
          reshaped(d.rstd, rstd), reshaped(d.weight, weight)};
}

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
