#include "mytorch/nn/transformer.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "mytorch/nn/functional.h"
#include "mytorch/nn/init.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/logical_not.h"
#include "mytorch/ops/logical_or.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/triu.h"
#include "mytorch/ops/zeros.h"
#include "nn/functional/attention.h"
#include "nn/functional/options.h"
#include "nn/split.h"

namespace mytorch::nn {

MultiheadAttention::MultiheadAttention(int64_t embed_dim, int64_t num_heads,
                                       MultiheadAttentionArgs options)
    : out_proj(embed_dim, embed_dim, options.bias), options({options, embed_dim, num_heads}) {
  const int64_t kdim = options.kdim.value_or(embed_dim), vdim = options.vdim.value_or(embed_dim);
  check_at_least(
      "MultiheadAttention", 1,
      {{"embed_dim", embed_dim}, {"num_heads", num_heads}, {"kdim", kdim}, {"vdim", vdim}});
  check_probability("MultiheadAttention", options.dropout);
  if (options.attention && (options.dropout != 0 || options.add_bias_kv || options.add_zero_attn)) {
    fail(ErrorCode::kValue,
         "[MultiheadAttention] the option `attention` excludes dropout, add_bias_kv and "
         "add_zero_attn");
  }
  if (embed_dim % num_heads != 0) {
    fail(ErrorCode::kValue, "[MultiheadAttention] ", num_heads, " heads do not divide embed_dim ",
         embed_dim);
  }
  if (kdim == embed_dim && vdim == embed_dim) {
    in_proj_weight = empty({3 * embed_dim, embed_dim}, kFloat32);
  } else {
    q_proj_weight = empty({embed_dim, embed_dim}, kFloat32);
    k_proj_weight = empty({embed_dim, kdim}, kFloat32);
    v_proj_weight = empty({embed_dim, vdim}, kFloat32);
  }
  if (options.bias) in_proj_bias = empty({3 * embed_dim}, kFloat32);
  if (options.add_bias_kv) {
    bias_k = empty({1, 1, embed_dim}, kFloat32);
    bias_v = empty({1, 1, embed_dim}, kFloat32);
  }
  register_parameter("in_proj_weight", in_proj_weight);
  register_parameter("q_proj_weight", q_proj_weight);
  register_parameter("k_proj_weight", k_proj_weight);
  register_parameter("v_proj_weight", v_proj_weight);
  register_parameter("in_proj_bias", in_proj_bias);
  register_parameter("bias_k", bias_k);
  register_parameter("bias_v", bias_v);
  register_module("out_proj", out_proj);
  reset_parameters();
}

void MultiheadAttention::reset_parameters() {
  for (const Tensor& weight : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight}) {
    if (weight.defined()) init::xavier_uniform_(weight);
  }
  out_proj.reset_parameters();
  for (const Tensor& bias : {bias_k, bias_v}) {
    if (bias.defined()) init::xavier_normal_(bias);
  }
  if (!in_proj_bias.defined()) return;
  init::zeros_(in_proj_bias);
  init::zeros_(out_proj.bias);
}

std::tuple<Tensor, Tensor> MultiheadAttention::forward(const Tensor& query, const Tensor& key,
                                                       const Tensor& value,
                                                       const Tensor& key_padding_mask,
                                                       bool need_weights, const Tensor& attn_mask,
                                                       bool average_attn_weights) {
  return forward(query, key, value,
                 AttentionMasks{.key_padding_mask = key_padding_mask,
                                .attn_mask = attn_mask,
                                .need_weights = need_weights,
                                .average_attn_weights = average_attn_weights});
}

std::tuple<Tensor, Tensor> MultiheadAttention::forward(const Tensor& query, const Tensor& key,
                                                       const Tensor& value,
                                                       const AttentionMasks& masks) {
  const auto [heads, weights] =
      attend("MultiheadAttention", query, key, value,
             {.embed_dim_to_check = options->embed_dim,
              .num_heads = options->num_heads,
              .in_proj_weight = in_proj_weight,
              .in_proj_bias = in_proj_bias,
              .bias_k = bias_k,
              .bias_v = bias_v,
              .add_zero_attn = options->add_zero_attn,
              .dropout_p = options->dropout,
              .training = training(),
              .key_padding_mask = masks.key_padding_mask,
              .need_weights = masks.need_weights,
              .attn_mask = masks.attn_mask,
              .use_separate_proj_weight = !in_proj_weight.defined(),
              .q_proj_weight = q_proj_weight,
              .k_proj_weight = k_proj_weight,
              .v_proj_weight = v_proj_weight,
              .average_attn_weights = masks.average_attn_weights,
              .is_causal = masks.is_causal},
             options->batch_first, options->attention, has_hooks() ? split_of(*this) : nullptr);
  if (has_hooks()) {
    const int64_t e = options->embed_dim, keys = key.numel() / key.size(-1);
    const int64_t samples = query.dim() == 2 ? 1 : query.size(options->batch_first ? 0 : 1);
    const int64_t queries = query.numel() / e, length = queries / std::max<int64_t>(samples, 1);
    const int64_t appended = samples * (bias_k.defined() + options->add_zero_attn);
    flops_ = 2 * static_cast<double>(e) *
             static_cast<double>(queries * e + keys * (key.size(-1) + value.size(-1)) +
                                 2 * length * (keys + appended));
  }
  return {out_proj(heads), weights};
}

double MultiheadAttention::flops(const Tensor& /*input*/, const Tensor& /*output*/) const {
  return flops_;
}

std::string MultiheadAttention::describe() const {
  std::string out =
      absl::StrCat("MultiheadAttention(", options->embed_dim, ", num_heads=", options->num_heads,
                   options->dropout == 0 ? "" : absl::StrCat(", dropout=", options->dropout));
  if (options->add_bias_kv) out += ", add_bias_kv=true";
  if (options->add_zero_attn) out += ", add_zero_attn=true";
  if (options->kdim.has_value()) absl::StrAppend(&out, ", kdim=", *options->kdim);
  if (options->vdim.has_value()) absl::StrAppend(&out, ", vdim=", *options->vdim);
  if (options->batch_first) out += ", batch_first=true";
  return out + ")";
}

// ---- layers ----

TransformerActivation::TransformerActivation(Str name) {
  constexpr const char* kNames[] = {"relu", "gelu"};
  if (index_of_name("activation", name, kNames) == 0) {
    function_ = [](const Tensor& x) { return relu(x); };
  } else {
    function_ = [](const Tensor& x) { return gelu(x); };
  }
}

namespace {

MultiheadAttentionArgs attention_options(const TransformerEncoderLayerArgs& options) {
  // A given function drops no weights; the dropout of the layer is then that of its results alone.
  return {.dropout = options.attention ? 0 : options.dropout,
          .bias = options.bias,
          .batch_first = options.batch_first,
          .attention = options.attention};
}

LayerNormArgs norm_options(const TransformerEncoderLayerArgs& options) {
  return {.eps = options.layer_norm_eps, .bias = options.bias};
}

// Adds a sublayer and its norm.
template <class Sublayer>
Tensor residual(const Tensor& x, LayerNorm& norm, bool norm_first, const Sublayer& sublayer) {
  return norm_first ? add(x, sublayer(norm(x))) : norm(add(x, sublayer(x)));
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(int64_t d_model, int64_t nhead,
                                                 TransformerEncoderLayerArgs options)
    : self_attn(d_model, nhead, attention_options(options)),
      linear1(d_model, options.dim_feedforward, options.bias),
      dropout(options.dropout),
      linear2(options.dim_feedforward, d_model, options.bias),
      norm1(d_model, norm_options(options)),
      norm2(d_model, norm_options(options)),
      dropout1(options.dropout),
      dropout2(options.dropout),
      options({std::move(options), d_model, nhead}) {
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
    return dropout2(linear2(dropout(options->activation(linear1(x)))));
  };
  const Tensor x = residual(src, norm1, options->norm_first, attend);
  return residual(x, norm2, options->norm_first, feed);
}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const Tensor& src_mask,
                                        const Tensor& src_key_padding_mask, bool is_causal) {
  return forward(src, AttentionMasks{src_key_padding_mask, src_mask, is_causal});
}

TransformerDecoderLayer::TransformerDecoderLayer(int64_t d_model, int64_t nhead,
                                                 TransformerDecoderLayerArgs options)
    : self_attn(d_model, nhead, attention_options(options)),
      multihead_attn(d_model, nhead, attention_options(options)),
      linear1(d_model, options.dim_feedforward, options.bias),
      dropout(options.dropout),
      linear2(options.dim_feedforward, d_model, options.bias),
      norm1(d_model, norm_options(options)),
      norm2(d_model, norm_options(options)),
      norm3(d_model, norm_options(options)),
      dropout1(options.dropout),
      dropout2(options.dropout),
      dropout3(options.dropout),
      options({std::move(options), d_model, nhead}) {
  register_module("self_attn", self_attn);
  register_module("multihead_attn", multihead_attn);
  register_module("linear1", linear1);
  register_module("dropout", dropout);
  register_module("linear2", linear2);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
  register_module("norm3", norm3);
  register_module("dropout1", dropout1);
  register_module("dropout2", dropout2);
  register_module("dropout3", dropout3);
}

Tensor TransformerDecoderLayer::forward(const Tensor& tgt, const Tensor& memory,
                                        const DecoderMasks& masks) {
  const auto attend = [&](const Tensor& x) {
    const AttentionMasks own{masks.tgt_key_padding_mask, masks.tgt_mask, masks.tgt_is_causal,
                             /*need_weights=*/false};
    return dropout1(std::get<0>(self_attn(x, x, x, own)));
  };
  const auto attend_to_memory = [&](const Tensor& x) {
    const AttentionMasks other{masks.memory_key_padding_mask, masks.memory_mask,
                               masks.memory_is_causal, /*need_weights=*/false};
    return dropout2(std::get<0>(multihead_attn(x, memory, memory, other)));
  };
  const auto feed = [&](const Tensor& x) {
    return dropout3(linear2(dropout(options->activation(linear1(x)))));
  };
  Tensor x = residual(tgt, norm1, options->norm_first, attend);
  x = residual(x, norm2, options->norm_first, attend_to_memory);
  return residual(x, norm3, options->norm_first, feed);
}

Tensor TransformerDecoderLayer::forward(const Tensor& tgt, const Tensor& memory,
                                        const Tensor& tgt_mask, const Tensor& memory_mask,
                                        const Tensor& tgt_key_padding_mask,
                                        const Tensor& memory_key_padding_mask) {
  return forward(
      tgt, memory,
      DecoderMasks{tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask});
}

// ---- stacks of layers ----

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer, int64_t num_layers,
                                       TransformerEncoderArgs options) {
  check_at_least("TransformerEncoder", 1, {{"num_layers", num_layers}});
  for (int64_t i = 0; i < num_layers; ++i) layers.push_back(nn::clone(layer));
  register_module("layers", layers);
  if (!options.norm.is_empty()) {
    register_any({"norm", options.norm.module()});
  }
}

Tensor TransformerEncoder::forward(const Tensor& src, const AttentionMasks& masks) {
  Tensor x = src;
  for (size_t i = 0; i < layers.size(); ++i) {
    x = layers.at<TransformerEncoderLayer>(i)(x, masks);
  }
  return num_children() > 1 ? child(1)(x) : x;
}

Tensor TransformerEncoder::forward(const Tensor& src, const Tensor& src_mask,
                                   const Tensor& src_key_padding_mask, bool is_causal) {
  return forward(src, AttentionMasks{src_key_padding_mask, src_mask, is_causal});
}

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& layer, int64_t num_layers,
                                       TransformerDecoderArgs options) {
  check_at_least("TransformerDecoder", 1, {{"num_layers", num_layers}});
  for (int64_t i = 0; i < num_layers; ++i) layers.push_back(nn::clone(layer));
  register_module("layers", layers);
  if (!options.norm.is_empty()) {
    register_any({"norm", options.norm.module()});
  }
}

Tensor TransformerDecoder::forward(const Tensor& tgt, const Tensor& memory,
                                   const DecoderMasks& masks) {
  Tensor x = tgt;
  for (size_t i = 0; i < layers.size(); ++i) {
    x = layers.at<TransformerDecoderLayer>(i)(x, memory, masks);
  }
  return num_children() > 1 ? child(1)(x) : x;
}

Tensor TransformerDecoder::forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask,
                                   const Tensor& memory_mask, const Tensor& tgt_key_padding_mask,
                                   const Tensor& memory_key_padding_mask) {
  return forward(
      tgt, memory,
      DecoderMasks{tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask});
}

// ---- transformer ----

Transformer::Transformer(int64_t d_model, int64_t nhead, TransformerArgs options)
    : d_model_(d_model), batch_first_(options.batch_first) {
  const TransformerEncoderLayerArgs layer{.dim_feedforward = options.dim_feedforward,
                                          .dropout = options.dropout,
                                          .activation = options.activation,
                                          .layer_norm_eps = options.layer_norm_eps,
                                          .batch_first = options.batch_first,
                                          .norm_first = options.norm_first,
                                          .bias = options.bias};
  const auto norm = [&] { return LayerNorm(d_model, norm_options(layer)); };
  encoder = !options.custom_encoder.is_empty()
                ? options.custom_encoder
                : TransformerEncoder(TransformerEncoderLayer(d_model, nhead, layer),
                                     options.num_encoder_layers, norm());
  decoder = !options.custom_decoder.is_empty()
                ? options.custom_decoder
                : TransformerDecoder(TransformerDecoderLayer(d_model, nhead, layer),
                                     options.num_decoder_layers, norm());
  register_module("encoder", encoder);
  register_module("decoder", decoder);
  reset_parameters();
}

void Transformer::reset_parameters() {
  for (const Tensor& parameter : parameters()) {
    if (parameter.dim() > 1) init::xavier_uniform_(parameter);
  }
}

Tensor Transformer::forward(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks) {
  const bool batched = src.dim() == 3;
  const int64_t batch_dim = batch_first_ ? 0 : 1;
  if ((src.dim() != 2 && !batched) || tgt.dim() != src.dim() || src.size(-1) != d_model_ ||
      tgt.size(-1) != d_model_ || (batched && src.size(batch_dim) != tgt.size(batch_dim))) {
    fail(ErrorCode::kShape, "[Transformer] src ", shape_str(src.sizes()), " and tgt ",
         shape_str(tgt.sizes()), " are not ",
         batch_first_ ? "(N, S, E) and (N, T, E)" : "(S, N, E) and (T, N, E)",
         ", or the same without N, for E = ", d_model_);
  }
  const Tensor memory =
      encoder(src, AttentionMasks{masks.src_key_padding_mask, masks.src_mask, masks.src_is_causal});
  return decoder(
      tgt, memory,
      DecoderMasks{masks.tgt_mask, masks.memory_mask, masks.tgt_key_padding_mask,
                   masks.memory_key_padding_mask, masks.tgt_is_causal, masks.memory_is_causal});
}

Tensor Transformer::forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask,
                            const Tensor& tgt_mask, const Tensor& memory_mask,
                            const Tensor& src_key_padding_mask, const Tensor& tgt_key_padding_mask,
                            const Tensor& memory_key_padding_mask) {
  return forward(src, tgt,
                 TransformerMasks{src_mask, tgt_mask, memory_mask, src_key_padding_mask,
                                  tgt_key_padding_mask, memory_key_padding_mask});
}

Tensor Transformer::generate_square_subsequent_mask(int64_t size, Device device, ScalarType dtype) {
  check_at_least("generate_square_subsequent_mask", 0, {{"size", size}});
  return triu(full({size, size}, -std::numeric_limits<double>::infinity(), dtype, device), 1);
}

// Not in the header: there, each costs the files that include it the instances of Callable.
std::tuple<Tensor, Tensor> MultiheadAttention::operator()(const Tensor& query, const Tensor& key,
                                                          const Tensor& value,
                                                          const AttentionMasks& masks) {
  return Callable::operator()(query, key, value, masks);
}
Tensor TransformerEncoderLayer::operator()(const Tensor& src, const AttentionMasks& masks) {
  return Callable::operator()(src, masks);
}
Tensor TransformerEncoder::operator()(const Tensor& src, const AttentionMasks& masks) {
  return Callable::operator()(src, masks);
}
Tensor TransformerDecoderLayer::operator()(const Tensor& tgt, const Tensor& memory,
                                           const DecoderMasks& masks) {
  return Callable::operator()(tgt, memory, masks);
}
Tensor TransformerDecoder::operator()(const Tensor& tgt, const Tensor& memory,
                                      const DecoderMasks& masks) {
  return Callable::operator()(tgt, memory, masks);
}
Tensor Transformer::operator()(const Tensor& src, const Tensor& tgt,
                               const TransformerMasks& masks) {
  return Callable::operator()(src, tgt, masks);
}

}  // namespace mytorch::nn
