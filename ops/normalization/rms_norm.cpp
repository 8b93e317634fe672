// Root-mean-square normalization, also of a sum with a residual.
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/native_add_rms_norm.h"
#include "mytorch/ops/native_add_rms_norm_backward.h"
#include "mytorch/ops/native_rms_norm.h"
#include "mytorch/ops/native_rms_norm_backward.h"
#include "ops/creation.h"
#include "ops/gradients.h"
#include "ops/normalization/norm_gradients.h"
#include "ops/normalization/normalization.h"
#include "ops/precision.h"

namespace mytorch {

using namespace normalization;

namespace {

double epsilon_of(ScalarType type) {
  return type == kFloat64    ? std::numeric_limits<double>::epsilon()
         : type == kFloat32  ? std::numeric_limits<float>::epsilon()
         : type == kBFloat16 ? 0x1p-7
                             : 0x1p-10;
}

}  // namespace

namespace shape {

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

}  // namespace composite

namespace grads {

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

}  // namespace grads
}  // namespace mytorch
