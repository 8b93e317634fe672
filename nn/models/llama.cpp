#include "mytorch/nn/models/llama.h"

#include "mytorch/autograd.h"
#include "mytorch/nn/init.h"
#include "nn/functional/options.h"
#include "nn/models/config_fields.h"
#include "nn/models/parts.h"
#include "nn/models/rope_fields.h"

namespace mytorch::nn::models {
namespace {

void visit(LlamaConfig& config, ConfigFields& fields) {
  fields.require("model_type", "llama");
  fields("vocab_size", config.vocab_size);
  fields("hidden_size", config.hidden_size);
  fields("intermediate_size", config.intermediate_size);
  fields("num_hidden_layers", config.num_hidden_layers);
  fields("num_attention_heads", config.num_attention_heads);
  fields("num_key_value_heads", config.num_key_value_heads);
  fields("head_dim", config.head_dim);
  fields("hidden_act", config.hidden_act);
  fields("max_position_embeddings", config.max_position_embeddings);
  fields("initializer_range", config.initializer_range);
  fields("rms_norm_eps", config.rms_norm_eps);
  fields("tie_word_embeddings", config.tie_word_embeddings);
  fields("attention_bias", config.attention_bias);
  fields("mlp_bias", config.mlp_bias);
  fields("attention_dropout", config.attention_dropout);
  visit_rope("LlamaConfig", fields, config.rope_theta, config.rope_scaling,
             config.max_position_embeddings);
}

int64_t key_value_heads(const LlamaConfig& config) {
  return config.num_key_value_heads.value_or(config.num_attention_heads);
}

int64_t head_width(const LlamaConfig& config) {
  return config.head_dim.value_or(config.hidden_size / config.num_attention_heads);
}

const LlamaConfig& checked(const LlamaConfig& config) {
  check_at_least("LlamaConfig", 1,
                 {{"vocab_size", config.vocab_size},
                  {"hidden_size", config.hidden_size},
                  {"intermediate_size", config.intermediate_size},
                  {"num_hidden_layers", config.num_hidden_layers},
                  {"num_attention_heads", config.num_attention_heads},
                  {"num_key_value_heads", key_value_heads(config)}});
  if (!config.head_dim.has_value()) {
    check_heads("LlamaConfig", "hidden_size", config.hidden_size, "num_attention_heads",
                config.num_attention_heads);
  }
  check_at_least("LlamaConfig", 1, {{"head_dim", head_width(config)}});
  check_heads("LlamaConfig", "num_attention_heads", config.num_attention_heads,
              "num_key_value_heads", key_value_heads(config));
  check_probability("LlamaConfig", config.attention_dropout);
  return config;
}

Linear linear_of(const LlamaConfig& config, int64_t in_features, int64_t out_features, bool bias) {
  Linear linear(in_features, out_features, bias);
  reset_normal(linear, config.initializer_range);
  return linear;
}

RMSNorm norm_of(const LlamaConfig& config) {
  return RMSNorm(config.hidden_size, {.eps = config.rms_norm_eps});
}

WeightLayout llama_layout() {
  return {.prefix = "model.", .transposed = {}, .ignored = {".rotary_emb.inv_freq"}};
}

std::string json_of(LlamaConfig config, const char* architecture) {
  ConfigFields fields = ConfigFields::write();
  fields.write_list("architectures", architecture);
  visit(config, fields);
  return fields.json();
}

}  // namespace

LlamaConfig LlamaConfig::read(const std::string& path) {
  ConfigFields fields = ConfigFields::read("LlamaConfig", config_path(path));
  LlamaConfig config;
  visit(config, fields);
  return config;
}

std::string LlamaConfig::json() const { return json_of(*this, "LlamaForCausalLM"); }

LlamaAttention::LlamaAttention(const LlamaConfig& config)
    : q_proj(linear_of(config, config.hidden_size, config.num_attention_heads * head_width(config),
                       config.attention_bias)),
      k_proj(linear_of(config, config.hidden_size, key_value_heads(config) * head_width(config),
                       config.attention_bias)),
      v_proj(linear_of(config, config.hidden_size, key_value_heads(config) * head_width(config),
                       config.attention_bias)),
      o_proj(linear_of(config, config.num_attention_heads * head_width(config), config.hidden_size,
                       config.attention_bias)),
      rotary_emb(head_width(config), {.base = config.rope_theta, .scaling = config.rope_scaling}),
      num_heads_(config.num_attention_heads),
      num_key_value_heads_(key_value_heads(config)),
      dropout_(config.attention_dropout) {
  register_module("q_proj", q_proj);
  register_module("k_proj", k_proj);
  register_module("v_proj", v_proj);
  register_module("o_proj", o_proj);
  register_module("rotary_emb", rotary_emb);
}

HeadProjections LlamaAttention::head_projections() {
  return {.inputs = {{&q_proj, num_heads_},
                     {&k_proj, num_key_value_heads_},
                     {&v_proj, num_key_value_heads_}},
          .outputs = {&o_proj}};
}

Tensor LlamaAttention::forward(const Tensor& input, KVCache* cache, int64_t layer) {
  const Tensor x = input_of_heads(*this, input, cache != nullptr);
  const int64_t heads = own_heads(*this, num_heads_);
  const int64_t key_value_heads = own_heads(*this, num_key_value_heads_);
  const Tensor q = rotary_emb(split_heads(q_proj(x), heads), cache);
  const Tensor k = rotary_emb(split_heads(k_proj(x), key_value_heads), cache);
  const Tensor v = split_heads(v_proj(x), key_value_heads);
  const Tensor y = cache != nullptr ? cache->attend(layer, q, k, v)
                                    : attention_of_heads(*this, q, k, v,
                                                         {.dropout_p = training() ? dropout_ : 0,
                                                          .is_causal = true,
                                                          .enable_gqa = heads != key_value_heads});
  return o_proj(join_heads(y));
}

LlamaMLP::LlamaMLP(const LlamaConfig& config)
    : gate_proj(linear_of(config, config.hidden_size, config.intermediate_size, config.mlp_bias)),
      up_proj(linear_of(config, config.hidden_size, config.intermediate_size, config.mlp_bias)),
      down_proj(linear_of(config, config.intermediate_size, config.hidden_size, config.mlp_bias)),
      activation_(activation_of("LlamaConfig", config.hidden_act)) {
  register_module("gate_proj", gate_proj);
  register_module("up_proj", up_proj);
  register_module("down_proj", down_proj);
}

Tensor LlamaMLP::forward(const Tensor& x) {
  return down_proj(gated(activation_, gate_proj(x), up_proj(x)));
}

LlamaDecoderLayer::LlamaDecoderLayer(const LlamaConfig& config)
    : input_layernorm(norm_of(config)),
      self_attn(config),
      post_attention_layernorm(norm_of(config)),
      mlp(config) {
  register_module("input_layernorm", input_layernorm);
  register_module("self_attn", self_attn);
  register_module("post_attention_layernorm", post_attention_layernorm);
  register_module("mlp", mlp);
}

Tensor LlamaDecoderLayer::forward(const Tensor& x, KVCache* cache, int64_t layer) {
  ResidualStream stream{x};
  extend(stream, cache, layer);
  return stream.sum();
}

void LlamaDecoderLayer::advance(ResidualStream& stream, KVCache* cache, int64_t layer) {
  // Hooks see sums, and anomaly mode names the blocks.
  if (has_hooks() || autograd::AnomalyMode::is_enabled()) {
    stream = {(*this)(stream.sum(), cache, layer)};
    return;
  }
  try {
    check_not_empty();
    compute_parametrized();
    extend(stream, cache, layer);
  } catch (const Error&) {
    rethrow_with_path();
  }
}

void LlamaDecoderLayer::extend(ResidualStream& stream, KVCache* cache, int64_t layer) {
  stream.branch = self_attn(stream.normalized(input_layernorm), cache, layer);
  stream.branch = mlp(stream.normalized(post_attention_layernorm));
}

LlamaModel::LlamaModel(const LlamaConfig& config)
    : embed_tokens(checked(config).vocab_size, config.hidden_size),
      norm(norm_of(config)),
      config_(config) {
  init::normal_(embed_tokens.weight, 0, config.initializer_range);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    layers.push_back(LlamaDecoderLayer(config));
  register_module("embed_tokens", embed_tokens);
  register_module("layers", layers);
  register_module("norm", norm);
}

Tensor LlamaModel::forward(const Tensor& input_ids, KVCache* cache) {
  check_ids("LlamaModel", input_ids);
  ResidualStream stream{embed_tokens(input_ids)};
  for (size_t i = 0; i < layers.size(); ++i) {
    layers.at<LlamaDecoderLayer>(i).advance(stream, cache, static_cast<int64_t>(i));
  }
  return stream.normalized(norm);
}

WeightLayout LlamaModel::weight_layout() const { return llama_layout(); }
std::string LlamaModel::config_json() const { return json_of(config_, "LlamaModel"); }

LlamaModel LlamaModel::from_pretrained(const std::string& folder, const PretrainedArgs& options) {
  return loaded(LlamaModel(LlamaConfig::read(folder)), folder, options);
}

LlamaForCausalLM::LlamaForCausalLM(const LlamaConfig& config)
    : model(config), lm_head(config.hidden_size, config.vocab_size, false) {
  if (config.tie_word_embeddings) {
    lm_head.weight = model.embed_tokens.weight;
  } else {
    reset_normal(lm_head, config.initializer_range);
  }
  register_module("model", model);
  register_module("lm_head", lm_head);
}

Tensor LlamaForCausalLM::forward(const Tensor& input_ids, KVCache* cache) {
  const Tensor x = model(input_ids, cache);
  return lm_head(cache != nullptr ? cache->last(x) : x);
}

Tensor LlamaForCausalLM::loss(const Tensor& input_ids, const Tensor& targets,
                              const TokenLossArgs& options) {
  return language_loss("LlamaForCausalLM", *this, model, input_ids, targets, options);
}

WeightLayout LlamaForCausalLM::weight_layout() const { return llama_layout(); }
std::string LlamaForCausalLM::config_json() const { return json_of(config(), "LlamaForCausalLM"); }

LlamaForCausalLM LlamaForCausalLM::from_pretrained(const std::string& folder,
                                                   const PretrainedArgs& options) {
  return loaded(LlamaForCausalLM(LlamaConfig::read(folder)), folder, options);
}

}  // namespace mytorch::nn::models
