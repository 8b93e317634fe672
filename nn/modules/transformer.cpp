#include "mytorch/nn/transformer.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "mytorch/nn/functional.h"
#include "mytorch/nn/init.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/logical_not.h"
#include "mytorch/ops/logical_or.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/triu.h"
#include "mytorch/ops/zeros.h"
#include "nn/functional/options.h"

namespace mytorch::nn {
namespace {

constexpr const char* kTransformerActivations[] = {"relu", "gelu"};

// The masks of all heads and samples as one, which broadcasts to (N, heads, L, S): bool, true for
// what is left out, or numbers to add. Undefined without masks.
class CombinedMask {
 public:
  CombinedMask(ScalarType dtype) : dtype_(dtype) {}
  void combine(const Tensor& mask) {
    if (!mask_.defined()) {
      mask_ = mask;
    } else if (mask_.dtype() == kBool && mask.dtype() == kBool) {
      mask_ = logical_or(mask_, mask);
    } else {
      mask_ = add(as_numbers(mask_), as_numbers(mask));
    }
  }
  bool defined() const { return mask_.defined(); }
  Tensor numbers() const { return as_numbers(mask_); }
  // As scaled_dot_product_attention takes it, where a bool mask keeps what is true.
  Tensor kept() const {
    if (!mask_.defined()) return mask_;
    return mask_.dtype() == kBool ? logical_not(mask_) : mask_.to(dtype_);
  }

 private:
  Tensor as_numbers(const Tensor& mask) const {
    if (mask.dtype() != kBool) return mask.to(dtype_);
    return zeros(mask.sizes(), dtype_, mask.device())
        .masked_fill(mask, -std::numeric_limits<double>::infinity());
  }

  ScalarType dtype_;
  Tensor mask_;
};

}  // namespace

MultiheadAttention::MultiheadAttention(int64_t embed_dim, int64_t num_heads,
                                       MultiheadAttentionArgs options)
    : out_proj(embed_dim, embed_dim, options.bias), num_heads_(num_heads), options_(options) {
  check_at_least("MultiheadAttention", 1, {{"embed_dim", embed_dim}, {"num_heads", num_heads}});
  check_probability("MultiheadAttention", options.dropout);
  if (embed_dim % num_heads != 0) {
    fail(ErrorCode::kValue, "[MultiheadAttention] ", num_heads, " heads do not divide embed_dim ",
         embed_dim);
  }
  in_proj_weight = empty({3 * embed_dim, embed_dim}, kFloat32);
  if (options.bias) in_proj_bias = empty({3 * embed_dim}, kFloat32);
  register_parameter("in_proj_weight", in_proj_weight);
  register_parameter("in_proj_bias", in_proj_bias);
  register_module("out_proj", out_proj);
  reset_parameters();
}

void MultiheadAttention::reset_parameters() {
  init::xavier_uniform_(in_proj_weight);
  out_proj.reset_parameters();
  if (!in_proj_bias.defined()) return;
  init::zeros_(in_proj_bias);
  init::zeros_(out_proj.bias);
}

std::tuple<Tensor, Tensor> MultiheadAttention::forward(const Tensor& query, const Tensor& key,
                                                       const Tensor& value,
                                                       const AttentionMasks& masks) {
  const int64_t e = in_proj_weight.size(1), dim = query.dim();
  if ((dim != 2 && dim != 3) || key.dim() != dim || !(key.sizes() == value.sizes()) ||
      query.size(-1) != e || key.size(-1) != e) {
    fail(ErrorCode::kShape, "[MultiheadAttention] query ", shape_str(query.sizes()), ", key ",
         shape_str(key.sizes()), " and value ", shape_str(value.sizes()),
         " are not (L, N, E), (S, N, E) and (S, N, E), or the same without N, for E = ", e);
  }
  // The inputs as (N, length, E), and back.
  const auto batch = [&](const Tensor& x) {
    return dim == 2 ? x.unsqueeze(0) : options_.batch_first ? x : x.transpose(0, 1);
  };
  const auto project = [&](const Tensor& x, int64_t part) {
    return linear(batch(x), in_proj_weight.narrow(0, part * e, e),
                  in_proj_bias.defined() ? in_proj_bias.narrow(0, part * e, e) : Tensor());
  };
  std::vector<Tensor> projected;
  if (query.is_same(key) && query.is_same(value)) {
    projected = linear(batch(query), in_proj_weight, in_proj_bias).chunk(3, -1);
  } else {
    projected = {project(query, 0), project(key, 1), project(value, 2)};
  }
  for (Tensor& x : projected) x = x.unflatten(-1, {num_heads_, e / num_heads_}).transpose(1, 2);
  const Tensor &q = projected[0], &k = projected[1], &v = projected[2];
  const int64_t n = q.size(0), length = q.size(2), keys = k.size(2);
  if (k.size(0) != n) {
    fail(ErrorCode::kShape, "[MultiheadAttention] query ", shape_str(query.sizes()), " and key ",
         shape_str(key.sizes()), " have different numbers of samples");
  }

  if (has_hooks()) {
    flops_ = static_cast<double>(2 * n * e) *
             static_cast<double>((length + 2 * keys) * e + 2 * length * keys);
  }

  CombinedMask mask(q.dtype());
  if (const Tensor& given = masks.attn_mask; given.defined()) {
    const bool each = given.dim() == 3;
    const std::vector<int64_t> expected = each ? std::vector<int64_t>{n * num_heads_, length, keys}
                                               : std::vector<int64_t>{length, keys};
    if (!(given.sizes() == IntList(expected))) {
      fail(ErrorCode::kShape, "[MultiheadAttention] attn_mask has shape ", shape_str(given.sizes()),
           ", expected ", shape_str(expected));
    }
    mask.combine(each ? given.unflatten(0, {n, num_heads_}) : given);
  }
  if (const Tensor& given = masks.key_padding_mask; given.defined()) {
    const Tensor rows = given.dim() == 1 && dim == 2 ? given.unsqueeze(0) : given;
    if (rows.dim() != 2 || rows.size(0) != n || rows.size(1) != keys) {
      fail(ErrorCode::kShape, "[MultiheadAttention] key_padding_mask has shape ",
           shape_str(given.sizes()), ", expected (", n, ", ", keys, ")");
    }
    mask.combine(rows.unsqueeze(1).unsqueeze(1));
  }
  bool causal = masks.is_causal;
  if (causal && (mask.defined() || masks.need_weights)) {
    mask.combine(triu(ones({length, keys}, kBool, q.device()), 1));
    causal = false;
  }

  const double dropout_p = training() ? options_.dropout : 0;
  Tensor result, weights;
  if (masks.need_weights) {
    Tensor scores = matmul(mul(q, 1 / std::sqrt(static_cast<double>(q.size(-1)))), k.mT());
    if (mask.defined()) scores = add(scores, mask.numbers());
    weights = softmax(scores, -1);
    if (dropout_p > 0) weights = dropout(weights, dropout_p, true);
    result = matmul(weights, v);
    if (masks.average_attn_weights) weights = weights.mean(1);
    if (dim == 2) weights = weights.squeeze(0);
  } else {
    result = scaled_dot_product_attention(q, k, v, mask.kept(), dropout_p, causal);
  }
  result = out_proj(result.transpose(1, 2).flatten(2));
  return {dim == 2               ? result.squeeze(0)
          : options_.batch_first ? result
                                 : result.transpose(0, 1),
          weights};
}

double MultiheadAttention::flops(const Tensor& /*input*/, const Tensor& /*output*/) const {
  return flops_;
}

std::string MultiheadAttention::describe() const {
  return absl::StrCat("MultiheadAttention(", in_proj_weight.size(1), ", num_heads=", num_heads_,
                      options_.dropout == 0 ? "" : absl::StrCat(", dropout=", options_.dropout),
                      options_.batch_first ? ", batch_first=true" : "", ")");
}

// ---- encoder ----

TransformerActivation from_name(Str name, TransformerActivation /*type*/) {
  return static_cast<TransformerActivation>(
      index_of_name("TransformerEncoderLayer", name, kTransformerActivations));
}

TransformerEncoderLayer::TransformerEncoderLayer(int64_t d_model, int64_t nhead,
                                                 TransformerEncoderLayerArgs options)
    : self_attn(
          d_model, nhead,
          {.dropout = options.dropout, .bias = options.bias, .batch_first = options.batch_first}),
      linear1(d_model, options.dim_feedforward, options.bias),
      dropout(options.dropout),
      linear2(options.dim_feedforward, d_model, options.bias),
      norm1(d_model, {.eps = options.layer_norm_eps, .bias = options.bias}),
      norm2(d_model, {.eps = options.layer_norm_eps, .bias = options.bias}),
      dropout1(options.dropout),
      dropout2(options.dropout),
      options_(options) {
  register_module("self_attn", self_attn);
  register_module("linear1", linear1);
  register_module("dropout", dropout);
  register_module("linear2", linear2);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
  register_module("dropout1", dropout1);
  register_module("dropout2", dropout2);
}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const AttentionMasks& masks) {
  AttentionMasks without_weights = masks;
  without_weights.need_weights = false;
  const auto attend = [&](const Tensor& x) {
    return dropout1(std::get<0>(self_attn(x, x, x, without_weights)));
  };
  const auto feed = [&](const Tensor& x) {
    const Tensor inner = linear1(x);
    const bool exact = options_.activation == TransformerActivation::kGELU;
    return dropout2(linear2(dropout(exact ? gelu(inner) : relu(inner))));
  };
  if (options_.norm_first) {
    const Tensor x = add(src, attend(norm1(src)));
    return add(x, feed(norm2(x)));
  }
  const Tensor x = norm1(add(src, attend(src)));
  return norm2(add(x, feed(x)));
}

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer, int64_t num_layers,
                                       std::optional<LayerNorm> norm) {
  check_at_least("TransformerEncoder", 1, {{"num_layers", num_layers}});
  for (int64_t i = 0; i < num_layers; ++i) layers.push_back(nn::clone(layer));
  register_module("layers", layers);
  if (norm.has_value()) register_module("norm", std::make_shared<LayerNorm>(std::move(*norm)));
}

Tensor TransformerEncoder::forward(const Tensor& src, const AttentionMasks& masks) {
  Tensor x = src;
  for (size_t i = 0; i < layers.size(); ++i) {
    x = layers.at<TransformerEncoderLayer>(i)(x, masks);
  }
  return num_children() > 1 ? child(1)(x) : x;
}

}  // namespace mytorch::nn
