// Group normalization.
#include <tuple>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/native_group_norm_backward.h"
#include "mytorch/ops/native_layer_norm.h"
#include "mytorch/ops/native_layer_norm_backward.h"
#include "ops/gradients.h"
#include "ops/normalization/norm_gradients.h"
#include "ops/normalization/normalization.h"
#include "ops/precision.h"

namespace mytorch {

using namespace normalization;

namespace {

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

TensorSpec group_statistics(const Tensor& input, int64_t group) {
  return like(input, {input.sizes()[0], group}, wide_type(input.dtype()));
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

}  // namespace

namespace shape {

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

}  // namespace shape

namespace composite {

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

}  // namespace composite

namespace grads {

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

}  // namespace grads
}  // namespace mytorch
