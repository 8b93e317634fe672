#include "mytorch/nn/models/deepseek.h"

#include <cmath>
#include <numeric>

#include "mytorch/grad_mode.h"
#include "mytorch/nn/init.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/argsort.h"
#include "mytorch/ops/bincount.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/floor_divide.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/index_add.h"
#include "mytorch/ops/linear.h"
#include "mytorch/ops/masked_fill.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/scaled_dot_product_attention.h"
#include "mytorch/ops/scatter.h"
#include "mytorch/ops/sigmoid.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/topk.h"
#include "mytorch/ops/zeros.h"
#include "nn/functional/options.h"
#include "nn/models/config_fields.h"
#include "nn/models/parts.h"
#include "nn/models/rope_fields.h"

namespace mytorch::nn::models {
namespace {

void visit(DeepseekV3Config& config, ConfigFields& fields) {
  fields.require("model_type", "deepseek_v3");
  fields("vocab_size", config.vocab_size);
  fields("hidden_size", config.hidden_size);
  fields("intermediate_size", config.intermediate_size);
  fields("moe_intermediate_size", config.moe_intermediate_size);
  fields("num_hidden_layers", config.num_hidden_layers);
  fields("num_attention_heads", config.num_attention_heads);
  fields("n_shared_experts", config.n_shared_experts);
  fields("n_routed_experts", config.n_routed_experts);
  fields("num_experts_per_tok", config.num_experts_per_tok);
  fields("n_group", config.n_group);
  fields("topk_group", config.topk_group);
  fields("routed_scaling_factor", config.routed_scaling_factor);
  fields("norm_topk_prob", config.norm_topk_prob);
  fields("first_k_dense_replace", config.first_k_dense_replace);
  fields("q_lora_rank", config.q_lora_rank);
  fields("kv_lora_rank", config.kv_lora_rank);
  fields("qk_nope_head_dim", config.qk_nope_head_dim);
  fields("qk_rope_head_dim", config.qk_rope_head_dim);
  fields("v_head_dim", config.v_head_dim);
  fields("hidden_act", config.hidden_act);
  fields("max_position_embeddings", config.max_position_embeddings);
  fields("initializer_range", config.initializer_range);
  fields("rms_norm_eps", config.rms_norm_eps);
  fields("tie_word_embeddings", config.tie_word_embeddings);
  fields("rope_interleave", config.rope_interleave);
  fields("attention_bias", config.attention_bias);
  fields("attention_dropout", config.attention_dropout);
  visit_rope("DeepseekV3Config", fields, config.rope_theta, config.rope_scaling,
             config.max_position_embeddings);
}

const DeepseekV3Config& checked(const DeepseekV3Config& config) {
  check_at_least("DeepseekV3Config", 1,
                 {{"vocab_size", config.vocab_size},
                  {"hidden_size", config.hidden_size},
                  {"intermediate_size", config.intermediate_size},
                  {"moe_intermediate_size", config.moe_intermediate_size},
                  {"num_hidden_layers", config.num_hidden_layers},
                  {"num_attention_heads", config.num_attention_heads},
                  {"n_routed_experts", config.n_routed_experts},
                  {"num_experts_per_tok", config.num_experts_per_tok},
                  {"n_group", config.n_group},
                  {"topk_group", config.topk_group},
                  {"q_lora_rank", config.q_lora_rank.value_or(1)},
                  {"kv_lora_rank", config.kv_lora_rank},
                  {"qk_nope_head_dim", config.qk_nope_head_dim},
                  {"v_head_dim", config.v_head_dim}});
  check_at_least("DeepseekV3Config", 0,
                 {{"n_shared_experts", config.n_shared_experts},
                  {"first_k_dense_replace", config.first_k_dense_replace}});
  check_heads("DeepseekV3Config", "n_routed_experts", config.n_routed_experts, "n_group",
              config.n_group);
  const int64_t reachable =
      config.n_routed_experts / config.n_group * std::min(config.topk_group, config.n_group);
  if (config.topk_group > config.n_group || config.num_experts_per_tok > reachable) {
    fail(ErrorCode::kValue, "[DeepseekV3Config] topk_group ", config.topk_group, " of n_group ",
         config.n_group, " groups leave ", reachable, " of ", config.n_routed_experts,
         " experts, and num_experts_per_tok is ", config.num_experts_per_tok);
  }
  if (config.n_group > 1 && config.n_routed_experts / config.n_group < 2) {
    fail(ErrorCode::kValue, "[DeepseekV3Config] n_group ", config.n_group, " of n_routed_experts ",
         config.n_routed_experts, ": a group needs two experts");
  }
  check_probability("DeepseekV3Config", config.attention_dropout);
  return config;
}

Linear linear_of(const DeepseekV3Config& config, int64_t in_features, int64_t out_features,
                 bool bias = false) {
  Linear linear(in_features, out_features, bias);
  reset_normal(linear, config.initializer_range);
  return linear;
}

RMSNorm norm_of(const DeepseekV3Config& config, int64_t width) {
  return RMSNorm(width, {.eps = config.rms_norm_eps});
}

DeepseekV3MLP mlp_of(const DeepseekV3Config& config, int64_t width) {
  return DeepseekV3MLP({.hidden_size = config.hidden_size,
                        .intermediate_size = width,
                        .hidden_act = config.hidden_act,
                        .initializer_range = config.initializer_range});
}

WeightLayout layout() {
  return {.prefix = "model.",
          .transposed = {},
          .ignored = {".rotary_emb.inv_freq"},
          .float32 = {".e_score_correction_bias"}};
}

std::string json_of(DeepseekV3Config config, const char* architecture) {
  ConfigFields fields = ConfigFields::write();
  fields.write_list("architectures", architecture);
  visit(config, fields);
  return fields.json();
}

}  // namespace

DeepseekV3Config DeepseekV3Config::read(const std::string& path) {
  ConfigFields fields = ConfigFields::read("DeepseekV3Config", config_path(path));
  DeepseekV3Config config;
  visit(config, fields);
  return config;
}

std::string DeepseekV3Config::json() const { return json_of(*this, "DeepseekV3ForCausalLM"); }

// ---- attention ----

DeepseekV3Attention::DeepseekV3Attention(const DeepseekV3Config& config)
    : kv_a_proj_with_mqa(linear_of(config, config.hidden_size,
                                   config.kv_lora_rank + config.qk_rope_head_dim,
                                   config.attention_bias)),
      kv_a_layernorm(norm_of(config, config.kv_lora_rank)),
      kv_b_proj(
          linear_of(config, config.kv_lora_rank,
                    config.num_attention_heads * (config.qk_nope_head_dim + config.v_head_dim))),
      o_proj(linear_of(config, config.num_attention_heads * config.v_head_dim, config.hidden_size,
                       config.attention_bias)),
      rotary_emb(config.qk_rope_head_dim, {.base = config.rope_theta,
                                           .interleaved = config.rope_interleave,
                                           .scaling = config.rope_scaling}),
      num_heads_(config.num_attention_heads),
      nope_(config.qk_nope_head_dim),
      rope_(config.qk_rope_head_dim),
      rank_(config.kv_lora_rank),
      value_(config.v_head_dim),
      compressed_queries_(config.q_lora_rank.has_value()),
      dropout_(config.attention_dropout) {
  const int64_t width = nope_ + rope_;
  if (compressed_queries_) {
    q_a_proj = linear_of(config, config.hidden_size, *config.q_lora_rank, config.attention_bias);
    q_a_layernorm = norm_of(config, *config.q_lora_rank);
    q_b_proj = linear_of(config, *config.q_lora_rank, num_heads_ * width);
    register_module("q_a_proj", q_a_proj);
    register_module("q_a_layernorm", q_a_layernorm);
    register_module("q_b_proj", q_b_proj);
  } else {
    q_proj = linear_of(config, config.hidden_size, num_heads_ * width);
    register_module("q_proj", q_proj);
  }
  register_module("kv_a_proj_with_mqa", kv_a_proj_with_mqa);
  register_module("kv_a_layernorm", kv_a_layernorm);
  register_module("kv_b_proj", kv_b_proj);
  register_module("o_proj", o_proj);
  register_module("rotary_emb", rotary_emb);
  scale_ = 1 / std::sqrt(static_cast<double>(width));
  const RotaryScaling& scaling = config.rope_scaling;
  if (scaling.mscale_all_dim != 0 && scaling.factor > 1) {
    const double size = 1 + 0.1 * scaling.mscale_all_dim * std::log(scaling.factor);
    scale_ *= size * size;
  }
}

Tensor DeepseekV3Attention::queries(const Tensor& x) {
  return compressed_queries_ ? q_b_proj(q_a_layernorm(q_a_proj(x))) : q_proj(x);
}

Tensor DeepseekV3Attention::forward(const Tensor& x, KVCache* cache, int64_t layer) {
  const Tensor q = split_heads(queries(x), num_heads_);
  const Tensor q_nope = q.narrow(-1, 0, nope_);
  const Tensor q_rope = rotary_emb(q.narrow(-1, nope_, rope_), cache);
  const Tensor packed = kv_a_proj_with_mqa(x);
  const Tensor latent = kv_a_layernorm(packed.narrow(-1, 0, rank_));
  const Tensor k_rope = rotary_emb(packed.narrow(-1, rank_, rope_).unsqueeze(1), cache);
  Tensor y;
  if (cache == nullptr) {
    y = attend_whole(q_nope, q_rope, latent, k_rope);
  } else {
    const Tensor stored = cat({latent.unsqueeze(1), k_rope}, -1);  // (N, 1, L, rank + rope)
    if (cache->max_length() == 0) {
      cache->append(layer, stored, stored.narrow(-1, 0, rank_));
      y = attend_whole(q_nope, q_rope, latent, k_rope);
    } else {
      y = attend_absorbed(q_nope, q_rope, stored, *cache, layer);
    }
  }
  return o_proj(join_heads(y));
}

Tensor DeepseekV3Attention::attend_whole(const Tensor& q_nope, const Tensor& q_rope,
                                         const Tensor& latent, const Tensor& k_rope) {
  const Tensor both = split_heads(kv_b_proj(latent), num_heads_);  // (N, H, L, nope + value)
  const Tensor shared = k_rope.expand({k_rope.size(0), num_heads_, k_rope.size(2), rope_});
  return scaled_dot_product_attention(
      cat({q_nope, q_rope}, -1), cat({both.narrow(-1, 0, nope_), shared}, -1),
      both.narrow(-1, nope_, value_), {}, training() ? dropout_ : 0, /*is_causal=*/true, scale_);
}

// With k = latent @ up_k.mT and v = latent @ up_v.mT, the products q @ k.mT are (q @ up_k) @
// latent.mT, and the results are (weights @ latent) @ up_v.mT.
Tensor DeepseekV3Attention::attend_absorbed(const Tensor& q_nope, const Tensor& q_rope,
                                            const Tensor& stored, KVCache& cache, int64_t layer) {
  const Tensor weights = kv_b_proj.weight.view({num_heads_, nope_ + value_, rank_});
  const Tensor query = cat({matmul(q_nope, weights.narrow(1, 0, nope_)), q_rope}, -1);
  const Tensor sums =
      cache.attend(layer, query, stored, stored.narrow(-1, 0, rank_), {.scale = scale_});
  return matmul(sums, weights.narrow(1, nope_, value_).mT());
}

// ---- experts ----

DeepseekV3TopkRouter::DeepseekV3TopkRouter(const DeepseekV3Config& config)
    : top_k_(config.num_experts_per_tok),
      groups_(config.n_group),
      top_groups_(config.topk_group),
      scaling_(config.routed_scaling_factor),
      normalize_(config.norm_topk_prob) {
  weight = register_parameter("weight", zeros({config.n_routed_experts, config.hidden_size}));
  init::normal_(weight, 0, config.initializer_range);
  e_score_correction_bias =
      register_buffer("e_score_correction_bias", zeros({config.n_routed_experts}));
}

std::tuple<Tensor, Tensor> DeepseekV3TopkRouter::choose(const Tensor& tokens) {
  const Tensor scores = sigmoid(linear(tokens.to(kFloat32), weight.to(kFloat32)));
  Tensor index;
  {
    const NoGradGuard no_grad;
    Tensor choice = add(scores, e_score_correction_bias.to(kFloat32));
    if (groups_ > 1) {
      const Tensor grouped = choice.unflatten(1, {groups_, choice.size(1) / groups_});
      const Tensor best = std::get<0>(topk(grouped, 2)).sum(-1);
      const Tensor kept = std::get<1>(topk(best, top_groups_));
      const Tensor left_out =
          scatter(ones(best.sizes(), kBool, best.device()), 1, kept, /*value=*/false);
      choice = masked_fill(grouped, left_out.unsqueeze(-1), 0).flatten(1);
    }
    index = std::get<1>(topk(choice, top_k_));
  }
  Tensor weights = gather(scores, 1, index);
  if (normalize_) weights = div(weights, add(sum(weights, {-1}, true), 1e-20));
  return {index, mul(weights, scaling_)};
}

DeepseekV3MoE::DeepseekV3MoE(const DeepseekV3Config& config)
    : gate(config), shared_(config.n_shared_experts > 0) {
  for (int64_t i = 0; i < config.n_routed_experts; ++i) {
    experts.push_back(mlp_of(config, config.moe_intermediate_size));
  }
  register_module("experts", experts);
  register_module("gate", gate);
  if (!shared_) return;
  shared_experts = mlp_of(config, config.moe_intermediate_size * config.n_shared_experts);
  register_module("shared_experts", shared_experts);
}

Tensor DeepseekV3MoE::forward(const Tensor& x) {
  const Tensor tokens = x.reshape({-1, x.size(-1)});
  const auto [index, weights] = gate.choose(tokens);
  // Choices in the order of experts, and the tokens that they belong to.
  const int64_t count = static_cast<int64_t>(experts.size());
  const Tensor chosen = index.flatten();
  const Tensor order = argsort(chosen);
  const Tensor rows = floor_divide(order, index.size(1));
  const Tensor counts = bincount(chosen, {}, count).to(kCPU);
  tokens_.assign(counts.const_data<int64_t>(), counts.const_data<int64_t>() + count);
  const Tensor gathered = tokens.index_select(0, rows);
  std::vector<Tensor> results;
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = tokens_[static_cast<size_t>(i)];
    if (size == 0) continue;
    auto& expert = experts.at<DeepseekV3MLP>(static_cast<size_t>(i));
    results.push_back(expert(gathered.narrow(0, begin, size)));
    begin += size;
  }
  Tensor y = zeros(tokens.sizes(), weights.dtype(), tokens.device());
  if (!results.empty()) {
    const Tensor share = weights.flatten().index_select(0, order).unsqueeze(1);
    y = index_add(y, 0, rows, mul(cat(results), share));
  }
  y = y.to(x.dtype()).reshape(x.sizes());
  return shared_ ? add(y, shared_experts(x)) : y;
}

void DeepseekV3MoE::balance(double speed, const std::vector<int64_t>& tokens_of_experts) {
  if (tokens_of_experts.size() != experts.size()) {
    fail(ErrorCode::kShape, "[DeepseekV3MoE] balance has the tokens of ", tokens_of_experts.size(),
         " experts, expected ", experts.size(), ": call it after a forward");
  }
  const double mean = static_cast<double>(std::accumulate(tokens_of_experts.begin(),
                                                          tokens_of_experts.end(), int64_t{0})) /
                      static_cast<double>(tokens_of_experts.size());
  std::vector<double> change;
  for (const int64_t tokens : tokens_of_experts) {
    const double missing = mean - static_cast<double>(tokens);
    change.push_back(missing > 0 ? speed : missing < 0 ? -speed : 0);
  }
  const NoGradGuard no_grad;
  Tensor& bias = gate.e_score_correction_bias;
  bias.add_(tensor(change, kFloat64).to(bias.dtype()).to(bias.device()));
}

// ---- models ----

DeepseekV3DecoderLayer::DeepseekV3DecoderLayer(const DeepseekV3Config& config, int64_t layer)
    : input_layernorm(norm_of(config, config.hidden_size)),
      self_attn(config),
      post_attention_layernorm(norm_of(config, config.hidden_size)),
      has_experts_(layer >= config.first_k_dense_replace) {
  register_module("input_layernorm", input_layernorm);
  register_module("self_attn", self_attn);
  register_module("post_attention_layernorm", post_attention_layernorm);
  if (has_experts_) {
    moe = DeepseekV3MoE(config);
    register_module("mlp", moe);
  } else {
    mlp = mlp_of(config, config.intermediate_size);
    register_module("mlp", mlp);
  }
}

Tensor DeepseekV3DecoderLayer::forward(const Tensor& x, KVCache* cache, int64_t layer) {
  const Tensor seen = add(x, self_attn(input_layernorm(x), cache, layer));
  const Tensor normal = post_attention_layernorm(seen);
  return add(seen, has_experts_ ? moe(normal) : mlp(normal));
}

DeepseekV3Model::DeepseekV3Model(const DeepseekV3Config& config)
    : embed_tokens(checked(config).vocab_size, config.hidden_size),
      norm(norm_of(config, config.hidden_size)),
      config_(config) {
  init::normal_(embed_tokens.weight, 0, config.initializer_range);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers.push_back(DeepseekV3DecoderLayer(config, i));
  }
  register_module("embed_tokens", embed_tokens);
  register_module("layers", layers);
  register_module("norm", norm);
}

Tensor DeepseekV3Model::forward(const Tensor& input_ids, KVCache* cache) {
  check_ids("DeepseekV3Model", input_ids);
  Tensor x = embed_tokens(input_ids);
  for (size_t i = 0; i < layers.size(); ++i) {
    x = layers.at<DeepseekV3DecoderLayer>(i)(x, cache, static_cast<int64_t>(i));
  }
  return norm(x);
}

void DeepseekV3Model::balance_experts(double speed) {
  for (size_t i = 0; i < layers.size(); ++i) {
    auto& layer = layers.at<DeepseekV3DecoderLayer>(i);
    if (layer.has_experts_) layer.moe.balance(speed, layer.moe.tokens_of_experts());
  }
}

WeightLayout DeepseekV3Model::weight_layout() const { return layout(); }
std::string DeepseekV3Model::config_json() const { return json_of(config_, "DeepseekV3Model"); }

DeepseekV3Model DeepseekV3Model::from_pretrained(const std::string& folder,
                                                 const PretrainedArgs& options) {
  return loaded(DeepseekV3Model(DeepseekV3Config::read(folder)), folder, options);
}

DeepseekV3ForCausalLM::DeepseekV3ForCausalLM(const DeepseekV3Config& config)
    : model(config), lm_head(config.hidden_size, config.vocab_size, false) {
  if (config.tie_word_embeddings) {
    lm_head.weight = model.embed_tokens.weight;
  } else {
    reset_normal(lm_head, config.initializer_range);
  }
  register_module("model", model);
  register_module("lm_head", lm_head);
}

Tensor DeepseekV3ForCausalLM::forward(const Tensor& input_ids, KVCache* cache) {
  const Tensor x = model(input_ids, cache);
  return lm_head(cache != nullptr ? cache->last(x) : x);
}

Tensor DeepseekV3ForCausalLM::loss(const Tensor& input_ids, const Tensor& targets,
                                   const TokenLossArgs& options) {
  return language_loss("DeepseekV3ForCausalLM", *this, model, input_ids, targets, options);
}

WeightLayout DeepseekV3ForCausalLM::weight_layout() const { return layout(); }
std::string DeepseekV3ForCausalLM::config_json() const {
  return json_of(config(), "DeepseekV3ForCausalLM");
}

DeepseekV3ForCausalLM DeepseekV3ForCausalLM::from_pretrained(const std::string& folder,
                                                             const PretrainedArgs& options) {
  return loaded(DeepseekV3ForCausalLM(DeepseekV3Config::read(folder)), folder, options);
}

}  // namespace mytorch::nn::models
