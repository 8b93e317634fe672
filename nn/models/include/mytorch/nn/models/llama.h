// Llama (Touvron et al., "LLaMA: open and efficient foundation language models", 2023; Grattafiori
// et al., "The Llama 3 herd of models", 2024), with Hugging Face's names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mytorch/nn/container.h"
#include "mytorch/nn/head_parallel.h"
#include "mytorch/nn/kv_cache.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/models/pretrained.h"
#include "mytorch/nn/models/residual_stream.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/rotary.h"

namespace mytorch::nn::models {

// The fields of config.json, with their defaults: those of the first Llama, 7 B parameters.
struct LlamaConfig {
  int64_t vocab_size = 32000;
  int64_t hidden_size = 4096;
  int64_t intermediate_size = 11008;
  int64_t num_hidden_layers = 32;
  int64_t num_attention_heads = 32;
  std::optional<int64_t> num_key_value_heads = {};  // num_attention_heads by default
  std::optional<int64_t> head_dim = {};             // hidden_size / num_attention_heads by default
  std::string hidden_act = "silu";
  int64_t max_position_embeddings = 2048;  // the longest sequence in pretraining; not a limit
  double initializer_range = 0.02;         // standard deviation of the initial weights
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;  // whether the head shares the weight of the token embedding
  double rope_theta = 10000;
  RotaryScaling rope_scaling = {};  // of the kinds "default", "linear" and "llama3"
  bool attention_bias = false;
  bool mlp_bias = false;
  double attention_dropout = 0;

  // Reads config.json, or that of a folder. Throws Error(kIo) if it cannot be read, and
  // Error(kValue) for another kind of model, or for an option that this implementation does not
  // have.
  static LlamaConfig read(const std::string& path);
  std::string json() const;
};

// Grouped attention with rotary positions.
class LlamaAttention final : public Callable<LlamaAttention>, public HeadParallel {
 public:
  using Callable::Callable;
  explicit LlamaAttention(const LlamaConfig& config);
  HeadProjections head_projections() override;
  Tensor forward(const Tensor& x, KVCache* cache = nullptr, int64_t layer = 0);

  Linear q_proj{nullptr};
  Linear k_proj{nullptr};
  Linear v_proj{nullptr};
  Linear o_proj{nullptr};
  RotaryEmbedding rotary_emb{nullptr};

 private:
  int64_t num_heads_ = 0;
  int64_t num_key_value_heads_ = 0;
  double dropout_ = 0;
};

// down(silu(gate(x)) * up(x)).
class LlamaMLP final : public Layer<LlamaMLP> {
 public:
  using Layer::Layer;
  explicit LlamaMLP(const LlamaConfig& config);
  Tensor forward(const Tensor& x) override;

  Linear gate_proj{nullptr};
  Linear up_proj{nullptr};
  Linear down_proj{nullptr};

 private:
  Tensor (*activation_)(const Tensor&) = nullptr;
};

class LlamaDecoderLayer final : public Callable<LlamaDecoderLayer> {
 public:
  using Callable::Callable;
  explicit LlamaDecoderLayer(const LlamaConfig& config);
  Tensor forward(const Tensor& x, KVCache* cache = nullptr, int64_t layer = 0);
  // The same of the sum of a stream, whose branch afterwards is that of the MLP.
  void advance(ResidualStream& stream, KVCache* cache = nullptr, int64_t layer = 0);

  RMSNorm input_layernorm{nullptr};
  LlamaAttention self_attn{nullptr};
  RMSNorm post_attention_layernorm{nullptr};
  LlamaMLP mlp{nullptr};

 private:
  void extend(ResidualStream& stream, KVCache* cache, int64_t layer);
};

// The body: token ids (N, L), int64, to features (N, L, hidden_size).
class LlamaModel final : public Callable<LlamaModel, PretrainedModel> {
 public:
  using Callable::Callable;
  // Throws Error(kValue) if sizes do not fit together.
  explicit LlamaModel(const LlamaConfig& config);
  static LlamaModel from_pretrained(const std::string& folder, const PretrainedArgs& options = {});
  // With a cache, the ids continue its sequences.
  Tensor forward(const Tensor& input_ids, KVCache* cache = nullptr);
  const LlamaConfig& config() const { return config_; }

  Embedding embed_tokens{nullptr};
  ModuleList layers;  // LlamaDecoderLayer
  RMSNorm norm{nullptr};

 protected:
  WeightLayout weight_layout() const override;
  std::string config_json() const override;

 private:
  LlamaConfig config_;
};

// The body and a linear head: token ids (N, L) to logits (N, L, vocab_size) of the next tokens.
class LlamaForCausalLM final : public Callable<LlamaForCausalLM, PretrainedModel> {
 public:
  using Callable::Callable;
  explicit LlamaForCausalLM(const LlamaConfig& config);
  static LlamaForCausalLM from_pretrained(const std::string& folder,
                                          const PretrainedArgs& options = {});
  // With a cache, returns the logits after the last token of each sequence alone, (N, 1,
  // vocab_size), as nn::generate expects.
  Tensor forward(const Tensor& input_ids, KVCache* cache = nullptr);
  // Returns the mean cross entropy of the logits and `targets` (N, L), int64, the token that
  // follows each input. Targets of -100 do not count.
  Tensor loss(const Tensor& input_ids, const Tensor& targets, const TokenLossArgs& options = {});
  const LlamaConfig& config() const { return model.config(); }

  LlamaModel model{nullptr};
  Linear lm_head{nullptr};

 protected:
  WeightLayout weight_layout() const override;
  std::string config_json() const override;
};

}  // namespace mytorch::nn::models
