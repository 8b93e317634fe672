#include "mytorch/nn/models/gpt2.h"

#include <cmath>

#include "mytorch/autograd.h"
#include "mytorch/nn/init.h"
#include "mytorch/ops/add.h"
#include "nn/functional/options.h"
#include "nn/models/config_fields.h"
#include "nn/models/parts.h"

namespace mytorch::nn::models {
namespace {

void visit(GPT2Config& config, ConfigFields& fields) {
  fields.require("model_type", "gpt2");
  fields("vocab_size", config.vocab_size);
  fields("n_positions", config.n_positions);
  fields("n_embd", config.n_embd);
  fields("n_layer", config.n_layer);
  fields("n_head", config.n_head);
  fields("n_inner", config.n_inner);
  fields("activation_function", config.activation_function);
  fields("resid_pdrop", config.resid_pdrop);
  fields("embd_pdrop", config.embd_pdrop);
  fields("attn_pdrop", config.attn_pdrop);
  fields("layer_norm_epsilon", config.layer_norm_epsilon);
  fields("initializer_range", config.initializer_range);
  fields("tie_word_embeddings", config.tie_word_embeddings);
  fields.refuse_unless("scale_attn_weights", true);
  fields.refuse_unless("scale_attn_by_inverse_layer_idx", false);
  fields.refuse_unless("add_cross_attention", false);
}

int64_t inner_width(const GPT2Config& config) { return config.n_inner.value_or(4 * config.n_embd); }

const GPT2Config& checked(const GPT2Config& config) {
  check_at_least("GPT2Config", 1,
                 {{"vocab_size", config.vocab_size},
                  {"n_positions", config.n_positions},
                  {"n_embd", config.n_embd},
                  {"n_layer", config.n_layer},
                  {"n_head", config.n_head},
                  {"n_inner", inner_width(config)}});
  check_heads("GPT2Config", "n_embd", config.n_embd, "n_head", config.n_head);
  check_probability("GPT2Config", config.attn_pdrop);
  return config;
}

// Files store the weights of all linear layers but the head as (in, out).
WeightLayout gpt2_layout() {
  return {.prefix = "transformer.",
          .transposed = {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"},
          .ignored = {".attn.bias", ".attn.masked_bias"}};
}

std::string json_of(GPT2Config config, const char* architecture) {
  ConfigFields fields = ConfigFields::write();
  fields.write_list("architectures", architecture);
  visit(config, fields);
  return fields.json();
}

}  // namespace

GPT2Config GPT2Config::read(const std::string& path) {
  ConfigFields fields = ConfigFields::read("GPT2Config", config_path(path));
  GPT2Config config;
  visit(config, fields);
  return config;
}

std::string GPT2Config::json() const { return json_of(*this, "GPT2LMHeadModel"); }

GPT2Attention::GPT2Attention(const GPT2Config& config)
    : c_attn(config.n_embd, 3 * config.n_embd),
      c_proj(config.n_embd, config.n_embd),
      resid_dropout(config.resid_pdrop),
      n_head_(config.n_head),
      attn_pdrop_(config.attn_pdrop) {
  register_module("c_attn", c_attn);
  register_module("c_proj", c_proj);
  register_module("resid_dropout", resid_dropout);
}

HeadProjections GPT2Attention::head_projections() {
  return {.inputs = {{&c_attn, n_head_, /*packed=*/3}}, .outputs = {&c_proj}};
}

Tensor GPT2Attention::forward(const Tensor& x, KVCache* cache, int64_t layer) {
  const std::vector<Tensor> qkv =
      split_qkv(c_attn(input_of_heads(*this, x, cache != nullptr)), own_heads(*this, n_head_));
  const Tensor y =
      cache != nullptr
          ? cache->attend(layer, qkv[0], qkv[1], qkv[2])
          : attention_of_heads(*this, qkv[0], qkv[1], qkv[2],
                               {.dropout_p = training() ? attn_pdrop_ : 0, .is_causal = true});
  return resid_dropout(c_proj(join_heads(y)));
}

GPT2MLP::GPT2MLP(const GPT2Config& config)
    : c_fc(config.n_embd, inner_width(config)),
      c_proj(inner_width(config), config.n_embd),
      dropout(config.resid_pdrop),
      activation_(activation_of("GPT2Config", config.activation_function)) {
  register_module("c_fc", c_fc);
  register_module("c_proj", c_proj);
  register_module("dropout", dropout);
}

Tensor GPT2MLP::forward(const Tensor& x) {
  return dropout(c_proj(activated(activation_, c_fc, x)));
}

GPT2Block::GPT2Block(const GPT2Config& config)
    : ln_1(config.n_embd, {.eps = config.layer_norm_epsilon}),
      attn(config),
      ln_2(config.n_embd, {.eps = config.layer_norm_epsilon}),
      mlp(config) {
  register_module("ln_1", ln_1);
  register_module("attn", attn);
  register_module("ln_2", ln_2);
  register_module("mlp", mlp);
}

Tensor GPT2Block::forward(const Tensor& x, KVCache* cache, int64_t layer) {
  ResidualStream stream{x};
  extend(stream, cache, layer);
  return stream.sum();
}

void GPT2Block::advance(ResidualStream& stream, KVCache* cache, int64_t layer) {
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

void GPT2Block::extend(ResidualStream& stream, KVCache* cache, int64_t layer) {
  stream.branch = attn(stream.normalized(ln_1), cache, layer);
  stream.branch = mlp(stream.normalized(ln_2));
}

GPT2Model::GPT2Model(const GPT2Config& config)
    : wte(checked(config).vocab_size, config.n_embd),
      wpe(config.n_positions, config.n_embd),
      drop(config.embd_pdrop),
      ln_f(config.n_embd, {.eps = config.layer_norm_epsilon}),
      config_(config) {
  for (int64_t i = 0; i < config.n_layer; ++i) h.push_back(GPT2Block(config));
  register_module("wte", wte);
  register_module("wpe", wpe);
  register_module("drop", drop);
  register_module("h", h);
  register_module("ln_f", ln_f);
  const double std = config.initializer_range;
  init::normal_(wte.weight, 0, std);
  init::normal_(wpe.weight, 0, std);
  // The variance of the residual stream does not grow with the number of its branches.
  const double branch_std = std / std::sqrt(2.0 * static_cast<double>(config.n_layer));
  for (size_t i = 0; i < h.size(); ++i) {
    auto& block = h.at<GPT2Block>(i);
    reset_normal(block.attn.c_attn, std);
    reset_normal(block.attn.c_proj, branch_std);
    reset_normal(block.mlp.c_fc, std);
    reset_normal(block.mlp.c_proj, branch_std);
  }
}

Tensor GPT2Model::forward(const Tensor& input_ids, KVCache* cache) {
  check_ids("GPT2Model", input_ids);
  const int64_t length = input_ids.size(1), before = cache != nullptr ? cache->max_length() : 0;
  check_length("GPT2Model", before + length, "n_positions", config_.n_positions);
  const Tensor positions = cache != nullptr ? wpe(cache->positions(length, input_ids.device()))
                                            : first_rows(wpe, length);
  ResidualStream stream{drop(add(wte(input_ids), positions))};
  for (size_t i = 0; i < h.size(); ++i) {
    h.at<GPT2Block>(i).advance(stream, cache, static_cast<int64_t>(i));
  }
  return stream.normalized(ln_f);
}

WeightLayout GPT2Model::weight_layout() const { return gpt2_layout(); }
std::string GPT2Model::config_json() const { return json_of(config_, "GPT2Model"); }

GPT2Model GPT2Model::from_pretrained(const std::string& folder, const PretrainedArgs& options) {
  return loaded(GPT2Model(GPT2Config::read(folder)), folder, options);
}

GPT2LMHeadModel::GPT2LMHeadModel(const GPT2Config& config)
    : transformer(config), lm_head(config.n_embd, config.vocab_size, false) {
  if (config.tie_word_embeddings) {
    lm_head.weight = transformer.wte.weight;
  } else {
    reset_normal(lm_head, config.initializer_range);
  }
  register_module("transformer", transformer);
  register_module("lm_head", lm_head);
}

Tensor GPT2LMHeadModel::forward(const Tensor& input_ids, KVCache* cache) {
  const Tensor x = transformer(input_ids, cache);
  return lm_head(cache != nullptr ? cache->last(x) : x);
}

Tensor GPT2LMHeadModel::loss(const Tensor& input_ids, const Tensor& targets,
                             const TokenLossArgs& options) {
  return language_loss("GPT2LMHeadModel", *this, transformer, input_ids, targets, options);
}

WeightLayout GPT2LMHeadModel::weight_layout() const { return gpt2_layout(); }
std::string GPT2LMHeadModel::config_json() const { return json_of(config(), "GPT2LMHeadModel"); }

GPT2LMHeadModel GPT2LMHeadModel::from_pretrained(const std::string& folder,
                                                 const PretrainedArgs& options) {
  return loaded(GPT2LMHeadModel(GPT2Config::read(folder)), folder, options);
}

}  // namespace mytorch::nn::models
