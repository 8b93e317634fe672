// Layer normalization, also of a sum with a residual.
#include <tuple>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/native_add_layer_norm.h"
#include "mytorch/ops/native_add_layer_norm_backward.h"
#include "mytorch/ops/native_layer_norm.h"
#include "mytorch/ops/native_layer_norm_backward.h"
#include "mytorch/ops/std_mean.h"
#include "ops/creation.h"
#include "ops/gradients.h"
#include "ops/normalization/norm_gradients.h"
#include "ops/normalization/normalization.h"
#include "ops/precision.h"

namespace mytorch {

using namespace normalization;

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

}  // namespace grads
}  // namespace mytorch
