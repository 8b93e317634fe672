// Scaled dot-product attention.
#include "mytorch/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/dropout.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/softmax_backward.h"
#include "ops/composites.h"
#include "ops/geometry.h"
#include "ops/gradients.h"

namespace mytorch {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_operands(const Tensor& query, const Tensor& key, const Tensor& value,
                    const Tensor& attn_mask, const char* op) {
  check_shape(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2 &&
                  query.size(-1) == key.size(-1) && key.size(-2) == value.size(-2),
              op, "query ", query.sizes(), ", key ", key.sizes(), " and value ", value.sizes(),
              " are not (..., L, E), (..., S, E) and (..., S, V)");
  check_type(
      query.is_floating_point() && query.dtype() == key.dtype() && query.dtype() == value.dtype(),
      op, "query, key and value are ", query.dtype(), ", ", key.dtype(), " and ", value.dtype(),
      ": they must be of one floating type");
  if (attn_mask.defined()) {
    check_type(attn_mask.dtype() == kBool || attn_mask.dtype() == query.dtype(), op,
               "attn_mask is ", attn_mask.dtype(), ": it must be bool, or ", query.dtype(),
               " as query is");
  }
}

Dims batch_sizes(const Tensor& x) { return geometry::leading_sizes(x, 2); }

// Repeats the heads of key or value for the groups of query heads that share them.
Tensor repeat_heads(const Tensor& x, int64_t heads) {
  const int64_t own = x.dim() < 3 ? 0 : x.size(-3);
  check_shape(own != 0 && heads % own == 0, "scaled_dot_product_attention", heads,
              " query heads do not divide among the heads of shape ", x.sizes());
  return own == heads ? x : x.repeat_interleave(heads / own, -3);
}

}  // namespace

namespace shape {

TensorSpec attention(const Tensor& query, const Tensor& key, const Tensor& value,
                     const Tensor& attn_mask, bool /*is_causal*/, double /*scale*/) {
  check_operands(query, key, value, attn_mask, "attention");
  check_shape(batch_sizes(query) == batch_sizes(key) && batch_sizes(query) == batch_sizes(value),
              "attention", "query ", query.sizes(), ", key ", key.sizes(), " and value ",
              value.sizes(), " differ in their leading dimensions");
  Dims scores = batch_sizes(query);
  scores.insert(scores.end(), {query.size(-2), key.size(-2)});
  if (attn_mask.defined()) {
    check_shape(broadcasts_to(attn_mask.sizes(), as_list(scores)), "attention",
                "attn_mask, of shape ", attn_mask.sizes(), ", does not broadcast to ",
                as_list(scores));
  }
  scores.back() = value.size(-1);
  return like(query, std::move(scores));
}

}  // namespace shape

namespace composite {

Tensor attention_weights(const Tensor& query, const Tensor& key, const Tensor& attn_mask,
                         bool is_causal, double scale) {
  // Each operand takes the square root of the scale, so that 16-bit products do not overflow.
  const double root = std::sqrt(std::abs(scale));
  Tensor scores =
      mytorch::matmul(query * (scale < 0 ? -root : root), (key * root).transpose(-2, -1));
  if (is_causal) {
    const Tensor all = mytorch::ones({query.size(-2), key.size(-2)}, kBool, query.device());
    scores = scores.masked_fill(all.triu(1), -kInfinity);
  }
  if (!attn_mask.defined()) return scores.softmax(-1);
  scores = attn_mask.dtype() == kBool ? scores.masked_fill(attn_mask.logical_not(), -kInfinity)
                                      : scores + attn_mask;
  Tensor result = scores.softmax(-1);
  if (scores.numel() == 0) return result;
  // A row that is masked everywhere attends to nothing; its softmax would be 0 / 0.
  const Tensor nothing = scores.amax(-1, true) == -kInfinity;
  return result.masked_fill(nothing, 0);
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa) {
  const char* op = "scaled_dot_product_attention";
  check_operands(query, key, value, attn_mask, op);
  check_value(!is_causal || !attn_mask.defined(), op, "give either attn_mask or is_causal");
  const Tensor k = enable_gqa && query.dim() >= 3 ? repeat_heads(key, query.size(-3)) : key;
  const Tensor v = enable_gqa && query.dim() >= 3 ? repeat_heads(value, query.size(-3)) : value;
  const double factor =
      scale.value_or(1 / std::sqrt(static_cast<double>(std::max<int64_t>(query.size(-1), 1))));
  Dims batch = broadcast_shapes(as_list(batch_sizes(query)), as_list(batch_sizes(k)), op);
  batch = broadcast_shapes(as_list(batch), as_list(batch_sizes(v)), op);
  const auto expanded = [&](const Tensor& x) {
    Dims sizes = batch;
    sizes.insert(sizes.end(), x.sizes().end() - 2, x.sizes().end());
    return x.sizes() == as_list(sizes) ? x : x.expand(as_list(sizes));
  };
  const Tensor q = expanded(query);
  if (dropout_p == 0) {
    return mytorch::attention(q, expanded(k), expanded(v), attn_mask, is_causal, factor);
  }
  // The gradient needs the dropped weights, so every step is an operator of its own.
  return mytorch::matmul(
      mytorch::dropout(attention_weights(q, expanded(k), attn_mask, is_causal, factor), dropout_p,
                       true),
      expanded(v));
}

}  // namespace composite

namespace grads {

// Recomputes the weights: they are larger than all other tensors together.
Tensors<4> attention_backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                              const Tensor& value, const Tensor& attn_mask, bool is_causal,
                              double scale) {
  const Tensor p = composite::attention_weights(query, key, attn_mask, is_causal, scale);
  const Tensor d_value = mytorch::matmul(p.transpose(-2, -1), grad);
  const Tensor d_scores = mytorch::softmax_backward(grad.matmul(value.transpose(-2, -1)), p, -1);
  const Tensor scaled = d_scores * scale;
  Tensor d_mask;
  if (attn_mask.defined() && attn_mask.dtype() != kBool) {
    d_mask = sum_to(d_scores, attn_mask.sizes());
  }
  return {scaled.matmul(key), mytorch::matmul(scaled.transpose(-2, -1), query), d_value, d_mask};
}

}  // namespace grads
}  // namespace mytorch
