// Differentiation of all kinds of normalization.
#include "ops/normalization/norm_gradients.h"

#include "mytorch/ops/empty.h"
#include "ops/precision.h"

namespace mytorch::normalization {

Terms layer_norm_terms(const Tensor& input, IntList normalized_shape, const Tensor& mean,
                       const Tensor& rstd, const Tensor& weight) {
  Terms terms{widened(input), widened(mean), widened(rstd), widened(weight), {}, {}};
  const int64_t lead = input.dim() - static_cast<int64_t>(normalized_shape.size());
  for (int64_t d = 0; d < input.dim(); ++d) (d < lead ? terms.others : terms.over).push_back(d);
  return terms;
}

Tensor plus(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? a + b : a;
}

Tensor weighted(const Tensor& x, const Tensor& weight) {
  return weight.defined() && x.defined() ? x * weight : x;
}

Tensor reshaped(const Tensor& x, const Tensor& like) {
  return x.defined() && like.defined() ? x.reshape(like.sizes()) : Tensor();
}

Tensor if_wanted(const Tensor& x, bool wanted) { return wanted ? x : Tensor(); }

namespace {

Tensor times(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() ? a * b : Tensor();
}

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

}  // namespace

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

Tensor through_rstd(const Terms& terms, const Tensor& grad_mean, const Tensor& grad_rstd) {
  const Tensor cube = terms.rstd * terms.rstd * terms.rstd;
  return through_statistics(terms, grad_mean, times(grad_rstd, cube), -1);
}

Tensors<3> backward(const Terms& terms, const Tensor& grad, bool want_x, bool want_weight,
                    bool want_bias) {
  Tensor dx, dw, db;
  const Tensor x_hat = want_x || want_weight ? terms.x_hat() : Tensor();
  if (want_x) dx = terms.rstd * projected(weighted(grad, terms.weight), x_hat, terms);
  if (want_weight) dw = sum_others(grad * x_hat, terms);
  if (want_bias) db = sum_others(grad, terms);
  return {dx, dw, db};
}

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

Tensor incoming(const Tensor* grads, IntList mask, size_t i) {
  return widened(if_wanted(grads[i], mask[i] != 0));
}

Tensors<3> only(const bool* wanted, const Tensors<3>& all) {
  const auto& [x, w, b] = all;
  return {if_wanted(x, wanted[0]), if_wanted(w, wanted[1]), if_wanted(b, wanted[2])};
}

}  // namespace mytorch::normalization
