// DeepSeek-V3 (DeepSeek-AI, "DeepSeek-V3 technical report", 2024), with Hugging Face's names:
// latent attention, whose cache holds one short vector for each token, and experts that are
// balanced without a term in the loss.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "mytorch/nn/container.h"
#include "mytorch/nn/kv_cache.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/models/llama.h"
#include "mytorch/nn/models/pretrained.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/rotary.h"

namespace mytorch::nn::models {

// The fields of config.json, with the values of DeepSeek-V3, 671 B parameters.
struct DeepseekV3Config {
  int64_t vocab_size = 129280;
  int64_t hidden_size = 7168;
  int64_t intermediate_size = 18432;     // of the first layers, which have no experts
  int64_t moe_intermediate_size = 2048;  // of each expert
  int64_t num_hidden_layers = 61;
  int64_t num_attention_heads = 128;
  int64_t n_shared_experts = 1;  // that every token takes
  int64_t n_routed_experts = 256;
  int64_t num_experts_per_tok = 8;
  int64_t n_group = 8;     // groups of experts
  int64_t topk_group = 4;  // groups that a token's experts are chosen from
  double routed_scaling_factor = 2.5;
  bool norm_topk_prob = true;               // whether the weights of a token's experts add up to 1
  int64_t first_k_dense_replace = 3;        // layers without experts
  std::optional<int64_t> q_lora_rank = {};  // width of compressed queries; none: not compressed
  int64_t kv_lora_rank = 512;               // width of compressed keys and values
  int64_t qk_nope_head_dim = 128;           // features of a head without positions
  int64_t qk_rope_head_dim = 64;            // and with rotary positions
  int64_t v_head_dim = 128;
  std::string hidden_act = "silu";
  int64_t max_position_embeddings = 4096;
  double initializer_range = 0.02;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  double rope_theta = 10000;
  RotaryScaling rope_scaling = {};
  bool rope_interleave = true;  // whether features 2i and 2i + 1 form a pair
  bool attention_bias = false;
  double attention_dropout = 0;

  // Reads config.json, or that of a folder. Throws Error(kIo) if it cannot be read, and
  // Error(kValue) for another kind of model, or for an option that this implementation does not
  // have.
  static DeepseekV3Config read(const std::string& path);
  std::string json() const;
};

// Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024). Keys and values of all heads are
// linear functions of one vector of kv_lora_rank features, and the heads share the features of keys
// that have positions. A cache holds these two, (kv_lora_rank + qk_rope_head_dim) numbers for each
// token. The first tokens of a cache are computed with keys and values of each head. Later ones
// multiply queries and results by the weights of kv_b_proj instead, so that keys and values are
// never made: hooks of kv_b_proj do not see these calls.
class DeepseekV3Attention final : public Callable<DeepseekV3Attention> {
 public:
  using Callable::Callable;
  explicit DeepseekV3Attention(const DeepseekV3Config& config);
  Tensor forward(const Tensor& x, KVCache* cache = nullptr, int64_t layer = 0);

  Linear q_proj{nullptr};  // without q_lora_rank; with it, the next three
  Linear q_a_proj{nullptr};
  RMSNorm q_a_layernorm{nullptr};
  Linear q_b_proj{nullptr};
  Linear kv_a_proj_with_mqa{nullptr};
  RMSNorm kv_a_layernorm{nullptr};
  Linear kv_b_proj{nullptr};
  Linear o_proj{nullptr};
  RotaryEmbedding rotary_emb{nullptr};

 private:
  Tensor queries(const Tensor& x);
  // Of heads (N, H, L, ...) and the shared features.
  Tensor attend_whole(const Tensor& q_nope, const Tensor& q_rope, const Tensor& latent,
                      const Tensor& k_rope);
  Tensor attend_absorbed(const Tensor& q_nope, const Tensor& q_rope, const Tensor& stored,
                         KVCache& cache, int64_t layer);

  int64_t num_heads_ = 0, nope_ = 0, rope_ = 0, rank_ = 0, value_ = 0;
  bool compressed_queries_ = false;
  double scale_ = 0, dropout_ = 0;
};

// A gated MLP, of a layer or an expert.
using DeepseekV3MLP = LlamaMLP;

// Chooses the experts of tokens (T, hidden_size). Scores are sigmoids of linear functions. The sum
// of its two largest scores selects a token's groups of experts, then scores select experts within
// them; for both, a bias that has no gradient is added to the scores.
class DeepseekV3TopkRouter final : public Layer<DeepseekV3TopkRouter> {
 public:
  using Layer::Layer;
  explicit DeepseekV3TopkRouter(const DeepseekV3Config& config);
  // Returns the experts (T, num_experts_per_tok), int64, and their weights, float32: the scores
  // without the bias, times routed_scaling_factor.
  std::tuple<Tensor, Tensor> choose(const Tensor& tokens);

  Tensor weight;  // (n_routed_experts, hidden_size)
  // (n_routed_experts), a buffer: float32 in pretrained models of any type. `to` converts it, as
  // all buffers, and 16 bits do not hold the steps of `balance`.
  Tensor e_score_correction_bias;

 private:
  int64_t top_k_ = 0, groups_ = 0, top_groups_ = 0;
  double scaling_ = 1;
  bool normalize_ = true;
};

// The sum of the experts that every token takes, as one MLP, and of those that the router chooses,
// by their weights: (..., hidden_size) to the same shape.
class DeepseekV3MoE final : public Layer<DeepseekV3MoE> {
 public:
  using Layer::Layer;
  explicit DeepseekV3MoE(const DeepseekV3Config& config);
  Tensor forward(const Tensor& x) override;
  // How many tokens of the last forward each expert had.
  const std::vector<int64_t>& tokens_of_experts() const { return tokens_; }
  // Changes the router's bias by `speed`: down for experts that had more tokens than the mean, up
  // for those that had fewer (Wang et al., "Auxiliary-loss-free load balancing strategy for
  // mixture-of- experts", 2024). Ranks pass the sum of their counts.
  void balance(double speed, const std::vector<int64_t>& tokens_of_experts);

  ModuleList experts;  // DeepseekV3MLP
  DeepseekV3TopkRouter gate{nullptr};
  DeepseekV3MLP shared_experts{nullptr};

 private:
  bool shared_ = false;
  std::vector<int64_t> tokens_;
};

class DeepseekV3DecoderLayer final : public Callable<DeepseekV3DecoderLayer> {
 public:
  using Callable::Callable;
  // The first layers have a DeepseekV3MLP, the others a DeepseekV3MoE.
  DeepseekV3DecoderLayer(const DeepseekV3Config& config, int64_t layer);
  Tensor forward(const Tensor& x, KVCache* cache = nullptr, int64_t layer = 0);

  RMSNorm input_layernorm{nullptr};
  DeepseekV3Attention self_attn{nullptr};
  RMSNorm post_attention_layernorm{nullptr};
  DeepseekV3MLP mlp{nullptr};  // or, by the same name, the next one
  DeepseekV3MoE moe{nullptr};

 private:
  friend class DeepseekV3Model;
  bool has_experts_ = false;
};

// The body: token ids (N, L), int64, to features (N, L, hidden_size).
class DeepseekV3Model final : public Callable<DeepseekV3Model, PretrainedModel> {
 public:
  using Callable::Callable;
  // Throws Error(kValue) if sizes do not fit together.
  explicit DeepseekV3Model(const DeepseekV3Config& config);
  static DeepseekV3Model from_pretrained(const std::string& folder,
                                         const PretrainedArgs& options = {});
  // With a cache, the ids continue its sequences.
  Tensor forward(const Tensor& input_ids, KVCache* cache = nullptr);
  // After a step of training: balances the experts of all layers by their last tokens.
  void balance_experts(double speed = 1e-3);
  const DeepseekV3Config& config() const { return config_; }

  Embedding embed_tokens{nullptr};
  ModuleList layers;  // DeepseekV3DecoderLayer
  RMSNorm norm{nullptr};

 protected:
  WeightLayout weight_layout() const override;
  std::string config_json() const override;

 private:
  DeepseekV3Config config_;
};

// The body and a linear head: token ids (N, L) to logits (N, L, vocab_size) of the next tokens.
class DeepseekV3ForCausalLM final : public Callable<DeepseekV3ForCausalLM, PretrainedModel> {
 public:
  using Callable::Callable;
  explicit DeepseekV3ForCausalLM(const DeepseekV3Config& config);
  static DeepseekV3ForCausalLM from_pretrained(const std::string& folder,
                                               const PretrainedArgs& options = {});
  // With a cache, returns the logits after the last token of each sequence alone, (N, 1,
  // vocab_size), as nn::generate expects.
  Tensor forward(const Tensor& input_ids, KVCache* cache = nullptr);
  // Returns the mean cross entropy of the logits and `targets` (N, L), int64, the token that
  // follows each input. Targets of -100 do not count.
  Tensor loss(const Tensor& input_ids, const Tensor& targets, const TokenLossArgs& options = {});
  const DeepseekV3Config& config() const { return model.config(); }

  DeepseekV3Model model{nullptr};
  Linear lm_head{nullptr};

 protected:
  WeightLayout weight_layout() const override;
  std::string config_json() const override;
};

}  // namespace mytorch::nn::models
