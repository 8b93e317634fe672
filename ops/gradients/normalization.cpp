// Gradients of softmax and of normalization, and the gradients of these.
#include "ops/normalization.h"

#include "mytorch/ops/add.h"
#include "mytorch/ops/batch_norm_training_backward.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/native_group_norm_backward.h"
#include "mytorch/ops/native_layer_norm_backward.h"
#include "mytorch/ops/native_rms_norm_backward.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/sum.h"
#include "ops/geometry.h"
#include "ops/gradients.h"
#include "ops/precision.h"

namespace mytorch {
namespace {

// An undefined tensor is a zero that costs nothing.
Tensor plus(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? mytorch::add(a, b) : a;
}

Tensor times(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() ? mytorch::mul(a, b) : Tensor();
}

Tensor weighted(const Tensor& x, const Tensor& weight) {
  return weight.defined() && x.defined() ? mytorch::mul(x, weight) : x;
}

Tensor centered(const normalization::Terms& terms) {
  return terms.mean.defined() ? mytorch::sub(terms.x, terms.mean) : terms.x;
}

Tensor x_hat_of(const normalization::Terms& terms) {
  return mytorch::mul(centered(terms), terms.rstd);
}

// v without its components along x_hat and, where a mean was taken off, along 1.
Tensor projected(const Tensor& v, const Tensor& x_hat, const normalization::Terms& terms) {
  const IntList over = as_list(terms.over);
  const Tensor along = mytorch::mul(x_hat, mytorch::mean(mytorch::mul(v, x_hat), over, true));
  const Tensor rest = terms.mean.defined() ? mytorch::sub(v, mytorch::mean(v, over, true)) : v;
  return mytorch::sub(rest, along);
}

Tensor sum_others(const Tensor& x, const normalization::Terms& terms) {
  return terms.others.empty() ? x : mytorch::sum(x, as_list(terms.others), true);
}

double count_over(const normalization::Terms& terms) {
  int64_t n = 1;
  for (const int64_t d : terms.over) n *= terms.x.sizes()[d];
  return static_cast<double>(n);
}

// Through mean, and through a statistic whose derivative is factor * (x - mean).
Tensor through_statistics(const normalization::Terms& terms, const Tensor& grad_mean,
                          const Tensor& grad_spread, double factor) {
  const double n = count_over(terms);
  Tensor result;
  if (grad_mean.defined()) result = mytorch::mul(grad_mean, 1 / n);
  if (grad_spread.defined()) {
    result = plus(result, mytorch::mul(mytorch::mul(grad_spread, factor / n), centered(terms)));
  }
  return result.expand(terms.x.sizes());
}

// d rstd / dx = -rstd^3 * (x - mean) / n
Tensor cube(const Tensor& rstd) { return mytorch::mul(mytorch::mul(rstd, rstd), rstd); }

Tensor given(const Tensor& gradient, bool wanted) { return wanted ? gradient : Tensor(); }

Tensor reshaped(const Tensor& x, const Tensor& like) {
  return x.defined() ? x.reshape(like.sizes()) : x;
}

}  // namespace

namespace normalization {

std::tuple<Tensor, Tensor, Tensor> backward(const Terms& terms, const Tensor& grad, bool want_x,
                                            bool want_weight, bool want_bias) {
  Tensor dx, dw, db;
  const Tensor x_hat = want_x || want_weight ? x_hat_of(terms) : Tensor();
  if (want_x) {
    dx = mytorch::mul(terms.rstd, projected(weighted(grad, terms.weight), x_hat, terms));
  }
  if (want_weight) dw = sum_others(mytorch::mul(grad, x_hat), terms);
  if (want_bias) db = sum_others(grad, terms);
  return {dx, dw, db};
}

// With h = grad * weight, dx = rstd * (h - mean(h) - x_hat * mean(h * x_hat)), the sum of grad *
// x_hat and that of grad, differentiated once more; v is grad_x.
DoubleGradients double_backward(const Terms& terms, const Tensor& grad, const Tensor& grad_x,
                                const Tensor& grad_weight, const Tensor& grad_bias) {
  const IntList over = as_list(terms.over);
  const Tensor x_hat = x_hat_of(terms);
  const Tensor h = weighted(grad, terms.weight);
  DoubleGradients result;
  Tensor d_x_hat = times(grad_weight, grad);
  result.grad = plus(times(grad_weight, x_hat), grad_bias);
  if (grad_x.defined()) {
    const Tensor& v = grad_x;
    const Tensor d_h = mytorch::mul(terms.rstd, projected(v, x_hat, terms));
    result.grad = plus(weighted(d_h, terms.weight), result.grad);
    if (terms.weight.defined()) result.weight = sum_others(mytorch::mul(grad, d_h), terms);
    const Tensor h_along = mytorch::mean(mytorch::mul(h, x_hat), over, true);
    const Tensor v_along = mytorch::mean(mytorch::mul(v, x_hat), over, true);
    const Tensor both = mytorch::add(mytorch::mul(v, h_along), mytorch::mul(h, v_along));
    d_x_hat = plus(mytorch::neg(mytorch::mul(terms.rstd, both)), d_x_hat);
    result.rstd = mytorch::sum(mytorch::mul(v, projected(h, x_hat, terms)), over, true);
  }
  if (d_x_hat.defined()) {
    result.x = mytorch::mul(d_x_hat, terms.rstd);
    if (terms.mean.defined()) result.mean = mytorch::neg(mytorch::sum(result.x, over, true));
    result.rstd =
        plus(result.rstd, mytorch::sum(mytorch::mul(d_x_hat, centered(terms)), over, true));
  }
  if (result.grad.defined()) result.grad = result.grad.expand(terms.x.sizes());
  return result;
}

}  // namespace normalization

namespace grads {

Tensor softmax_backward_output(const Tensor& grad, const Tensor& grad_output, const Tensor& output,
                               int64_t dim) {
  // Of output * (g - sum(g * output)) with respect to output.
  const Tensor v = widened(grad), g = widened(grad_output), y = widened(output);
  const Tensor inner = mytorch::sub(g, mytorch::sum(mytorch::mul(g, y), dim, true));
  return mytorch::sub(mytorch::mul(v, inner),
                      mytorch::mul(g, mytorch::sum(mytorch::mul(v, y), dim, true)));
}

Tensor log_softmax_backward_grad(const Tensor& grad, const Tensor& output, int64_t dim) {
  const Tensor v = widened(grad);
  return mytorch::sub(v, mytorch::sum(mytorch::mul(v, mytorch::exp(widened(output))), dim, true));
}

Tensor log_softmax_backward_output(const Tensor& grad, const Tensor& grad_output,
                                   const Tensor& output, int64_t dim) {
  return mytorch::neg(mytorch::mul(mytorch::mul(widened(grad), mytorch::exp(widened(output))),
                                   mytorch::sum(widened(grad_output), dim, true)));
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor* grads, const Tensor& input,
                                                       IntList normalized_shape, const Tensor& mean,
                                                       const Tensor& rstd, const Tensor& weight,
                                                       bool want_input, bool want_weight,
                                                       bool want_bias) {
  Tensor dx, dw, db;
  if (grads[0].defined()) {
    const auto [x, w, b] =
        mytorch::native_layer_norm_backward(grads[0], input, normalized_shape, mean, rstd, weight,
                                            {want_input, want_weight, want_bias});
    dx = given(x, want_input);
    dw = given(w, want_weight);
    db = given(b, want_bias);
  }
  if (want_input && (grads[1].defined() || grads[2].defined())) {
    const auto terms = normalization::layer_norm_terms(input, normalized_shape, mean, rstd, weight);
    dx = plus(dx, through_statistics(terms, grads[1], times(grads[2], cube(terms.rstd)), -1));
  }
  return {dx, dw, db};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> layer_norm_double_backward(
    const Tensor* grads, const Tensor& grad_out, const Tensor& input, IntList normalized_shape,
    const Tensor& mean, const Tensor& rstd, const Tensor& weight, IntList output_mask) {
  const auto terms = normalization::layer_norm_terms(input, normalized_shape, mean, rstd, weight);
  const auto d = normalization::double_backward(
      terms, widened(grad_out), widened(given(grads[0], output_mask[0] != 0)),
      widened(given(grads[1], output_mask[1] != 0)), widened(given(grads[2], output_mask[2] != 0)));
  return {d.grad, d.x, d.mean, d.rstd, weight.defined() ? reshaped(d.weight, weight) : Tensor()};
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor* grads, const Tensor& input,
                                             IntList normalized_shape, const Tensor& rstd,
                                             const Tensor& weight, bool want_input,
                                             bool want_weight) {
  Tensor dx, dw;
  if (grads[0].defined()) {
    const auto [x, w] = mytorch::native_rms_norm_backward(grads[0], input, normalized_shape, rstd,
                                                          weight, {want_input, want_weight});
    dx = given(x, want_input);
    dw = given(w, want_weight);
  }
  if (want_input && grads[1].defined()) {
    const auto terms = normalization::layer_norm_terms(input, normalized_shape, {}, rstd, weight);
    dx = plus(dx, through_statistics(terms, {}, times(grads[1], cube(terms.rstd)), -1));
  }
  return {dx, dw};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> rms_norm_double_backward(
    const Tensor* grads, const Tensor& grad_out, const Tensor& input, IntList normalized_shape,
    const Tensor& rstd, const Tensor& weight, IntList output_mask) {
  const auto terms = normalization::layer_norm_terms(input, normalized_shape, {}, rstd, weight);
  const auto d = normalization::double_backward(terms, widened(grad_out),
                                                widened(given(grads[0], output_mask[0] != 0)),
                                                widened(given(grads[1], output_mask[1] != 0)), {});
  return {d.grad, d.x, d.rstd, weight.defined() ? reshaped(d.weight, weight) : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> group_norm_backward(const Tensor* grads, const Tensor& input,
                                                       const Tensor& mean, const Tensor& rstd,
                                                       const Tensor& weight, int64_t group,
                                                       bool want_input, bool want_weight,
                                                       bool want_bias) {
  Tensor dx, dw, db;
  if (grads[0].defined()) {
    const auto [x, w, b] = mytorch::native_group_norm_backward(
        grads[0], input, mean, rstd, weight, group, {want_input, want_weight, want_bias});
    dx = given(x, want_input);
    dw = given(w, want_weight);
    db = given(b, want_bias);
  }
  if (want_input && (grads[1].defined() || grads[2].defined())) {
    const auto terms = normalization::group_norm_terms(input, mean, rstd, weight, group);
    const auto by_group = [&](const Tensor& x) { return reshaped(x, terms.rstd); };
    const Tensor through = through_statistics(terms, by_group(grads[1]),
                                              times(by_group(grads[2]), cube(terms.rstd)), -1);
    dx = plus(dx, through.reshape(input.sizes()));
  }
  return {dx, dw, db};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> group_norm_double_backward(
    const Tensor* grads, const Tensor& grad_out, const Tensor& input, const Tensor& mean,
    const Tensor& rstd, const Tensor& weight, int64_t group, IntList output_mask) {
  const auto terms = normalization::group_norm_terms(input, mean, rstd, weight, group);
  const auto like_x = [&](const Tensor& x) { return reshaped(widened(x), terms.x); };
  const auto parameter = [&](size_t i) {
    const Tensor x = widened(given(grads[i], output_mask[i] != 0));
    return x.defined() ? x.reshape({1, group, terms.x.sizes()[2], 1}) : x;
  };
  const auto d = normalization::double_backward(terms, like_x(grad_out),
                                                like_x(given(grads[0], output_mask[0] != 0)),
                                                parameter(1), parameter(2));
  return {reshaped(d.grad, input), reshaped(d.x, input), reshaped(d.mean, mean),
          reshaped(d.rstd, rstd), weight.defined() ? reshaped(d.weight, weight) : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_backward(const Tensor* grads, const Tensor& input,
                                                       const Tensor& weight, const Tensor& mean,
                                                       const Tensor& var, double eps,
                                                       bool want_input, bool want_weight,
                                                       bool want_bias) {
  Tensor dx, dw, db;
  if (grads[0].defined()) {
    const auto [x, w, b] = mytorch::batch_norm_training_backward(
        grads[0], input, weight, mean, var, eps, {want_input, want_weight, want_bias});
    dx = given(x, want_input);
    dw = given(w, want_weight);
    db = given(b, want_bias);
  }
  if (want_input && (grads[1].defined() || grads[2].defined())) {
    const auto terms = normalization::batch_norm_terms(input, mean, var, weight, eps);
    const int64_t ndim = input.dim();  // d var / dx = 2 * (x - mean) / n
    dx = plus(dx, through_statistics(terms, normalization::per_channel(grads[1], ndim),
                                     normalization::per_channel(grads[2], ndim), 2));
  }
  return {dx, dw, db};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> batch_norm_double_backward(
    const Tensor* grads, const Tensor& grad_out, const Tensor& input, const Tensor& weight,
    const Tensor& mean, const Tensor& var, double eps, IntList output_mask) {
  const auto terms = normalization::batch_norm_terms(input, mean, var, weight, eps);
  const int64_t ndim = input.dim();
  const auto parameter = [&](size_t i) {
    return normalization::per_channel(widened(given(grads[i], output_mask[i] != 0)), ndim);
  };
  const auto d = normalization::double_backward(terms, widened(grad_out),
                                                widened(given(grads[0], output_mask[0] != 0)),
                                                parameter(1), parameter(2));
  Tensor d_var;
  if (d.rstd.defined()) {  // rstd = (var + eps)^-1/2
    d_var = mytorch::mul(mytorch::mul(d.rstd, cube(terms.rstd)), -0.5).reshape(var.sizes());
  }
  return {d.grad, d.x, weight.defined() ? reshaped(d.weight, weight) : Tensor(),
          reshaped(d.mean, mean), d_var};
}

}  // namespace grads
}  // namespace mytorch
