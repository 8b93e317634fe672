// GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019), with Hugging
// Face's names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mytorch/nn/container.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/head_parallel.h"
#include "mytorch/nn/kv_cache.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/models/pretrained.h"
#include "mytorch/nn/models/residual_stream.h"
#include "mytorch/nn/normalization.h"

namespace mytorch::nn::models {

// The fields of config.json, with their defaults: those of the model "gpt2", 124 M parameters.
struct GPT2Config {
  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;  // the longest sequence
  int64_t n_embd = 768;
  int64_t n_layer = 12;
  int64_t n_head = 12;
  std::optional<int64_t> n_inner = {};           // 4 * n_embd by default
  std::string activation_function = "gelu_new";  // or "gelu", "relu", "silu"
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;  // standard deviation of the initial weights
  bool tie_word_embeddings = true;  // whether the head shares the weight of the token embedding

  // Reads config.json, or that of a folder. Throws Error(kIo) if it cannot be read, and
  // Error(kValue) for another kind of model, or for an option that this implementation does not
  // have.
  static GPT2Config read(const std::string& path);
  std::string json() const;
};

class GPT2Attention final : public Callable<GPT2Attention>, public HeadParallel {
 public:
  using Callable::Callable;
  explicit GPT2Attention(const GPT2Config& config);
  HeadProjections head_projections() override;
  Tensor forward(const Tensor& x, KVCache* cache = nullptr, int64_t layer = 0);

  Linear c_attn{nullptr};  // queries, keys and values
  Linear c_proj{nullptr};
  Dropout resid_dropout{nullptr};

 private:
  int64_t n_head_ = 0;
  double attn_pdrop_ = 0;
};

class GPT2MLP final : public Layer<GPT2MLP> {
 public:
  using Layer::Layer;
  explicit GPT2MLP(const GPT2Config& config);
  Tensor forward(const Tensor& x) override;

  Linear c_fc{nullptr};
  Linear c_proj{nullptr};
  Dropout dropout{nullptr};

 private:
  Tensor (*activation_)(const Tensor&) = nullptr;
};

class GPT2Block final : public Callable<GPT2Block> {
 public:
  using Callable::Callable;
  explicit GPT2Block(const GPT2Config& config);
  Tensor forward(const Tensor& x, KVCache* cache = nullptr, int64_t layer = 0);
  // The same of the sum of a stream, whose branch afterwards is that of the MLP.
  void advance(ResidualStream& stream, KVCache* cache = nullptr, int64_t layer = 0);

  LayerNorm ln_1{nullptr};
  GPT2Attention attn{nullptr};
  LayerNorm ln_2{nullptr};
  GPT2MLP mlp{nullptr};

 private:
  void extend(ResidualStream& stream, KVCache* cache, int64_t layer);
};

// The body: token ids (N, L), int64, to features (N, L, n_embd).
class GPT2Model final : public Callable<GPT2Model, PretrainedModel> {
 public:
  using Callable::Callable;
  explicit GPT2Model(const GPT2Config& config);
  static GPT2Model from_pretrained(const std::string& folder, const PretrainedArgs& options = {});
  // With a cache, the ids continue its sequences. Throws Error(kShape) for sequences longer than
  // n_positions.
  Tensor forward(const Tensor& input_ids, KVCache* cache = nullptr);
  const GPT2Config& config() const { return config_; }

  Embedding wte{nullptr};  // of tokens
  Embedding wpe{nullptr};  // of positions
  Dropout drop{nullptr};
  ModuleList h;  // GPT2Block
  LayerNorm ln_f{nullptr};

 protected:
  WeightLayout weight_layout() const override;
  std::string config_json() const override;

 private:
  GPT2Config config_;
};

// The body and a linear head: token ids (N, L) to logits (N, L, vocab_size) of the next tokens.
class GPT2LMHeadModel final : public Callable<GPT2LMHeadModel, PretrainedModel> {
 public:
  using Callable::Callable;
  // Initializes the weights as GPT-2's: normally distributed, with those that end a residual branch
  // divided by sqrt(2 * n_layer). Throws Error(kValue) if sizes do not fit together.
  explicit GPT2LMHeadModel(const GPT2Config& config);
  static GPT2LMHeadModel from_pretrained(const std::string& folder,
                                         const PretrainedArgs& options = {});
  // With a cache, returns the logits after the last token of each sequence alone, (N, 1,
  // vocab_size), as nn::generate expects.
  Tensor forward(const Tensor& input_ids, KVCache* cache = nullptr);
  // Returns the mean cross entropy of the logits and `targets` (N, L), int64, the token that
  // follows each input. Targets of -100 do not count.
  Tensor loss(const Tensor& input_ids, const Tensor& targets, const TokenLossArgs& options = {});
  const GPT2Config& config() const { return transformer.config(); }

  GPT2Model transformer{nullptr};
  Linear lm_head{nullptr};

 protected:
  WeightLayout weight_layout() const override;
  std::string config_json() const override;
};

}  // namespace mytorch::nn::models
