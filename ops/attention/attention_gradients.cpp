// Attention backward, and the gradients of attention and of its backward.
#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/attention_backward.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/zeros.h"
#include "ops/attention/attention.h"
#include "ops/gradients.h"
#include "ops/precision.h"

namespace mytorch {

using namespace attention;

namespace {

// The intermediate values of the gradient, each (B, K, G, L, S) unless it says otherwise.
struct Backward {
  Operands x;
  Scores scores;
  Tensor p;        // the weights before dropout
  Tensor factors;  // of dropout; undefined without it
  Tensor d_out;    // (B, K, G, L, V)
  Tensor inner;    // the gradient of p, less what the sum of the row subtracts
  Tensor d_masked, d_product;

  Backward(const Arguments& a, const Tensor& grad_output, const Tensor& grad_logsumexp,
           const Tensor& output, const Tensor& logsumexp, const Tensor& draw)
      : x(a), scores(a, x) {
    const auto split = [&](const Tensor& t) {
      return widened(t).unflatten(1, {a.key.size(1), group_size(a)});
    };
    p = weights_of(scores.masked, split(logsumexp));
    if (a.dropout_p != 0) factors = dropout_factors(a, draw, p.dtype());
    d_out = split(grad_output);
    Tensor delta = (d_out * split(output)).sum(-1, true);
    if (grad_logsumexp.defined()) delta = delta - split(grad_logsumexp).unsqueeze(-1);
    inner = dropped(mytorch::matmul(d_out, x.v.mT())) - delta;
    d_masked = p * inner;
    // A row that sees nothing has no gradient, even if infinities were masked there.
    d_product = through_cap(d_masked);
  }

  Tensor dropped(const Tensor& t) const { return factors.defined() ? t * factors : t; }
  Tensor through_cap(const Tensor& t) const {
    return scores.slope.defined() ? t * scores.slope : t;
  }
};

// Sums over the query heads that share a key head.
Tensor over_group(const Tensor& x) { return x.sum(2); }

// Returns the gradient of the mask from that of the masked scores.
Tensor mask_gradient(const Tensor& d_masked, const Tensor& attn_mask) {
  return grads::sum_to(join_heads(d_masked), attn_mask.sizes());
}

}  // namespace

namespace shape {

Specs<4> attention_backward(const Tensor& grad_output, const Tensor& grad_logsumexp,
                            const Tensor& query, const Tensor& key, const Tensor& value,
                            const Tensor& attn_mask, const Tensor& slopes, const Tensor& output,
                            const Tensor& logsumexp, const Tensor& draw, int64_t left,
                            int64_t right, int64_t diagonal, double softcap, double scale,
                            double dropout_p, IntList output_mask) {
  const char* op = "attention_backward";
  const Arguments a{query, key,      value,   attn_mask, slopes,   left,
                    right, diagonal, softcap, scale,     dropout_p};
  check_arguments(a, op);
  const ScalarType wide = wide_type(query.dtype());
  const auto check_like_result = [&](const Tensor& x, const char* name, const Dims& sizes,
                                     ScalarType type) {
    check_shape(x.sizes() == as_list(sizes), op, name, " has shape ", x.sizes(), ", expected ",
                as_list(sizes));
    check_type(x.dtype() == type, op, name, " is ", x.dtype(), ", expected ", type);
  };
  check_like_result(grad_output, "grad_output", a.output_sizes(), query.dtype());
  check_like_result(output, "output", a.output_sizes(), query.dtype());
  check_like_result(logsumexp, "logsumexp", a.row_sizes(), wide);
  if (grad_logsumexp.defined()) {
    check_like_result(grad_logsumexp, "grad_logsumexp", a.row_sizes(), wide);
  }
  check_like_result(draw, "draw", {dropout_p != 0 ? 2 : 0}, kInt64);
  check_shape(output_mask.size() == 4, op, "output_mask has ",
              static_cast<int64_t>(output_mask.size()), " elements, expected 4");
  const auto spec = [&](bool wanted, const Tensor& of) {
    return wanted ? rows_like(of, to_dims(of.sizes())) : like(query, {0});
  };
  const bool wants_mask = output_mask[3] != 0 && a.has_float_mask();
  return {spec(output_mask[0] != 0, query), spec(output_mask[1] != 0, key),
          spec(output_mask[2] != 0, value), wants_mask ? like(attn_mask) : like(query, {0})};
}

}  // namespace shape

namespace composite {

Tensors<4> attention_backward(const Tensor& grad_output, const Tensor& grad_logsumexp,
                              const Tensor& query, const Tensor& key, const Tensor& value,
                              const Tensor& attn_mask, const Tensor& slopes, const Tensor& output,
                              const Tensor& logsumexp, const Tensor& draw, int64_t left,
                              int64_t right, int64_t diagonal, double softcap, double scale,
                              double dropout_p, IntList mask) {
  const Arguments a{query, key,      value,   attn_mask, slopes,   left,
                    right, diagonal, softcap, scale,     dropout_p};
  const Backward b(a, grad_output, grad_logsumexp, output, logsumexp, draw);
  const auto none = [&] { return mytorch::empty({0}, query.dtype(), query.device()); };
  Tensors<4> result{none(), none(), none(), none()};
  const auto& [q, k, v] = b.x;
  const Tensor d_product = b.d_product * scale;
  if (mask[0] != 0) std::get<0>(result) = placed(join_heads(mytorch::matmul(d_product, k)), query);
  if (mask[1] != 0) {
    std::get<1>(result) = placed(over_group(mytorch::matmul(d_product.mT(), q)), key);
  }
  if (mask[2] != 0) {
    std::get<2>(result) = placed(over_group(mytorch::matmul(b.dropped(b.p).mT(), b.d_out)), value);
  }
  if (mask[3] != 0 && a.has_float_mask()) {
    std::get<3>(result) = mask_gradient(b.d_masked, attn_mask).to(attn_mask.dtype()).contiguous();
  }
  return result;
}

}  // namespace composite

namespace {

// Whether queries, keys and values lie side by side in the rows of one tensor (B, L, 3, H, D), as a
// linear layer that computes all three leaves them.
bool is_packed(const Tensor& query, const Tensor& key, const Tensor& value) {
  const int64_t row = 3 * query.size(1) * query.size(3);
  const Dims strides{query.size(2) * row, query.size(3), row, 1};
  const Tensor* all[] = {&query, &key, &value};
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor& x = *all[i];
    if (x.impl()->storage != query.impl()->storage || x.dtype() != query.dtype() ||
        x.sizes() != query.sizes() || x.strides() != as_list(strides) ||
        x.storage_offset() != query.storage_offset() + i * row / 3) {
      return false;
    }
  }
  return query.numel() != 0;
}

}  // namespace

namespace grads {

Tensors<4> attention_gradient(const Tensor* grads, const Tensor& query, const Tensor& key,
                              const Tensor& value, const Tensor& attn_mask, const Tensor& slopes,
                              const Tensor& output, const Tensor& logsumexp, const Tensor& draw,
                              int64_t left, int64_t right, int64_t diagonal, double softcap,
                              double scale, double dropout_p, const bool* wanted) {
  const Tensor grad_output = grads[0].defined()
                                 ? grads[0]
                                 : mytorch::zeros(output.sizes(), output.dtype(), output.device());
  const bool wants_mask = wanted[3] && attn_mask.defined() && attn_mask.dtype() != kBool;
  if (wanted[0] && wanted[1] && wanted[2] && !wants_mask && !grad_enabled() &&
      is_packed(query, key, value)) {
    // The gradients are packed, too, so that joining them copies nothing.
    const Tensor packed =
        mytorch::empty({query.size(0), query.size(2), 3, query.size(1), query.size(3)},
                       query.dtype(), query.device());
    const auto part = [&](int64_t i) { return packed.select(2, i).transpose(1, 2); };
    Tensors<4> result{part(0), part(1), part(2), {}};
    mytorch::attention_backward_out(std::get<0>(result), std::get<1>(result), std::get<2>(result),
                                    mytorch::empty({0}, query.dtype(), query.device()), grad_output,
                                    grads[1], query, key, value, attn_mask, slopes, output,
                                    logsumexp, draw.detach(), left, right, diagonal, softcap, scale,
                                    dropout_p, {1, 1, 1, 0});
    return result;
  }
  Tensors<4> result = mytorch::attention_backward(
      grad_output, grads[1], query, key, value, attn_mask, slopes, output, logsumexp, draw.detach(),
      left, right, diagonal, softcap, scale, dropout_p,
      {int64_t{wanted[0]}, int64_t{wanted[1]}, int64_t{wanted[2]}, int64_t{wants_mask}});
  if (!wanted[0]) std::get<0>(result) = Tensor();
  if (!wanted[1]) std::get<1>(result) = Tensor();
  if (!wanted[2]) std::get<2>(result) = Tensor();
  if (!wants_mask) std::get<3>(result) = Tensor();
  return result;
}

Tensors<8> attention_double_backward(const Tensor* grads, const Tensor& grad_output,
                                     const Tensor& grad_logsumexp, const Tensor& query,
                                     const Tensor& key, const Tensor& value,
                                     const Tensor& attn_mask, const Tensor& slopes,
                                     const Tensor& output, const Tensor& logsumexp,
                                     const Tensor& draw, int64_t left, int64_t right,
                                     int64_t diagonal, double softcap, double scale,
                                     double dropout_p, IntList mask) {
  const Arguments a{query, key,      value,   attn_mask, slopes,   left,
                    right, diagonal, softcap, scale,     dropout_p};
  const Backward b(a, grad_output, grad_logsumexp, output, logsumexp, draw);
  const auto& [q, k, v] = b.x;
  const auto split = [&](const Tensor& t) {
    return widened(t).unflatten(1, {a.key.size(1), group_size(a)});
  };
  const auto given = [&](int i) { return mask[i] != 0 && grads[i].defined(); };
  const auto add = [](Tensor& sum, const Tensor& term) { sum = sum.defined() ? sum + term : term; };
  const Tensor zero = mytorch::zeros(b.p.sizes(), b.p.dtype(), b.p.device());
  Tensor to_q, to_k, to_v, to_out;  // gradients of the operands, with split heads
  Tensor to_product = zero, to_masked = zero, to_p = zero;

  // grad_query = d_product @ k * scale and grad_key = d_product.mT @ q * scale
  if (given(0)) {
    const Tensor g = split(grads[0]) * scale;
    to_product = to_product + mytorch::matmul(g, k.mT());
    add(to_k, mytorch::matmul(b.d_product.mT(), g));
  }
  if (given(1)) {
    const Tensor g = widened(grads[1]).unsqueeze(2) * scale;
    to_product = to_product + mytorch::matmul(q, g.mT());
    add(to_q, mytorch::matmul(b.d_product, g));
  }
  // grad_value = dropped(p).mT @ d_out
  if (given(2)) {
    const Tensor g = widened(grads[2]).unsqueeze(2);
    to_p = to_p + b.dropped(mytorch::matmul(b.d_out, g.mT()));
    add(to_out, mytorch::matmul(b.dropped(b.p), g));
  }
  if (given(3) && a.has_float_mask()) to_masked = to_masked + split_heads(widened(grads[3]), a);

  // d_masked = p * inner; d_product = d_masked * slope
  to_masked = to_masked + b.through_cap(to_product);
  to_p = to_p + to_masked * b.inner;
  const Tensor to_inner = b.p * to_masked;
  const Tensor of_rows = to_inner.sum(-1, true);
  add(to_out, mytorch::matmul(b.dropped(to_inner), v) - of_rows * split(output));
  add(to_v, mytorch::matmul(b.dropped(to_inner).mT(), b.d_out));
  const Tensor to_output = -(of_rows * b.d_out);

  // p = exp(masked - logsumexp)
  const Tensor to_scores = b.p * to_p;
  Tensor to_raw = b.through_cap(to_scores);
  if (softcap != 0) {  // the derivative of slope is -2 * capped / softcap^2 * slope
    to_raw = to_raw +
             b.through_cap(to_product * b.d_masked * b.scores.capped) * (-2 / (softcap * softcap));
  }
  to_raw = to_raw * scale;
  add(to_q, mytorch::matmul(to_raw, k));
  add(to_k, mytorch::matmul(to_raw.mT(), q));

  const ScalarType type = query.dtype();
  const auto joined = [&](const Tensor& t) { return join_heads(t).to(type); };
  const Tensor to_grad_logsumexp =
      grad_logsumexp.defined() ? join_heads(of_rows.squeeze(-1)) : Tensor();
  const Tensor to_mask =
      a.has_float_mask() ? mask_gradient(to_scores, attn_mask).to(attn_mask.dtype()) : Tensor();
  return {joined(to_out),
          to_grad_logsumexp,
          joined(to_q),
          over_group(to_k).to(type),
          over_group(to_v).to(type),
          to_mask,
          joined(to_output),
          -join_heads(to_scores.sum(-1))};
}

}  // namespace grads
}  // namespace mytorch
