// BERT (Devlin et al., "BERT: pre-training of deep bidirectional transformers for language
// understanding", NAACL 2019), with Hugging Face's names. MiniLM and other sentence encoders are
// BERT models.
#pragma once

#include <cstdint>
#include <string>

#include "mytorch/nn/container.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/head_parallel.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/models/pretrained.h"
#include "mytorch/nn/normalization.h"

namespace mytorch::nn::models {

// The fields of config.json, with their defaults: those of "bert-base-uncased", 110 M parameters.
struct BertConfig {
  int64_t vocab_size = 30522;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";  // or "gelu_new", "relu", "silu"
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  int64_t max_position_embeddings = 512;  // the longest sequence
  int64_t type_vocab_size = 2;
  double initializer_range = 0.02;  // standard deviation of the initial weights
  double layer_norm_eps = 1e-12;
  int64_t pad_token_id = 0;

  // Reads config.json, or that of a folder. Throws Error(kIo) if it cannot be read, and
  // Error(kValue) for another kind of model, or for an option that this implementation does not
  // have.
  static BertConfig read(const std::string& path);
  std::string json() const;
};

struct BertInputs {
  Tensor attention_mask = {};  // (N, L): true or 1 for tokens, false or 0 for padding
  Tensor token_type_ids = {};  // (N, L), int64: 0 for the first sentence, 1 for the second; zeros
};

struct BertOutput {
  Tensor last_hidden_state;  // (N, L, hidden_size)
  Tensor pooler_output;      // (N, hidden_size); undefined without a pooler
};

class BertEmbeddings final : public Callable<BertEmbeddings> {
 public:
  using Callable::Callable;
  explicit BertEmbeddings(const BertConfig& config);
  Tensor forward(const Tensor& input_ids, const Tensor& token_type_ids);

  Embedding word_embeddings{nullptr};
  Embedding position_embeddings{nullptr};
  Embedding token_type_embeddings{nullptr};
  LayerNorm layer_norm{nullptr};  // registered as "LayerNorm"
  Dropout dropout{nullptr};
};

// The projections of queries, keys and values, and attention.
class BertSelfAttention final : public Callable<BertSelfAttention>, public HeadParallel {
 public:
  using Callable::Callable;
  explicit BertSelfAttention(const BertConfig& config);
  HeadProjections head_projections() override;
  Tensor forward(const Tensor& x, const Tensor& mask);

  Linear query{nullptr};
  Linear key{nullptr};
  Linear value{nullptr};

 private:
  int64_t num_heads_ = 0;
  double dropout_ = 0;
};

// A linear layer, dropout, the residual and a norm.
class BertResidual final : public Callable<BertResidual> {
 public:
  using Callable::Callable;
  BertResidual(int64_t in_features, const BertConfig& config);
  Tensor forward(const Tensor& x, const Tensor& residual);

  Linear dense{nullptr};
  LayerNorm layer_norm{nullptr};  // registered as "LayerNorm"
  Dropout dropout{nullptr};
};

class BertAttention final : public Callable<BertAttention> {
 public:
  using Callable::Callable;
  explicit BertAttention(const BertConfig& config);
  Tensor forward(const Tensor& x, const Tensor& mask);

  BertSelfAttention self{nullptr};
  BertResidual output{nullptr};
};

// A linear layer and the activation.
class BertIntermediate final : public Layer<BertIntermediate> {
 public:
  using Layer::Layer;
  explicit BertIntermediate(const BertConfig& config);
  Tensor forward(const Tensor& x) override;

  Linear dense{nullptr};

 private:
  Tensor (*activation_)(const Tensor&) = nullptr;
};

class BertLayer final : public Callable<BertLayer> {
 public:
  using Callable::Callable;
  explicit BertLayer(const BertConfig& config);
  Tensor forward(const Tensor& x, const Tensor& mask);

  BertAttention attention{nullptr};
  BertIntermediate intermediate{nullptr};
  BertResidual output{nullptr};
};

class BertEncoder final : public Callable<BertEncoder> {
 public:
  using Callable::Callable;
  explicit BertEncoder(const BertConfig& config);
  Tensor forward(const Tensor& x, const Tensor& mask);

  ModuleList layer;  // BertLayer
};

// A linear layer and tanh of the first token's features.
class BertPooler final : public Layer<BertPooler> {
 public:
  using Layer::Layer;
  explicit BertPooler(const BertConfig& config);
  Tensor forward(const Tensor& hidden) override;

  Linear dense{nullptr};
};

// Token ids (N, L), int64, to features of each token and of the sequence.
class BertModel final : public Callable<BertModel, PretrainedModel> {
 public:
  using Callable::Callable;
  // Throws Error(kValue) if sizes do not fit together.
  explicit BertModel(const BertConfig& config, bool add_pooling_layer = true);
  static BertModel from_pretrained(const std::string& folder, const PretrainedArgs& options = {},
                                   bool add_pooling_layer = true);
  // Throws Error(kShape) for sequences longer than max_position_embeddings, and for masks and types
  // of another shape than `input_ids`.
  BertOutput forward(const Tensor& input_ids, const BertInputs& inputs = {});
  using Callable::operator();
  BertOutput operator()(const Tensor& input_ids, const BertInputs& inputs) {
    return Callable::operator()(input_ids, inputs);
  }
  const BertConfig& config() const { return config_; }

  BertEmbeddings embeddings{nullptr};
  BertEncoder encoder{nullptr};
  BertPooler pooler{nullptr};  // empty without a pooling layer

 protected:
  WeightLayout weight_layout() const override;
  std::string config_json() const override;

 private:
  BertConfig config_;
};

// Returns the mean over the tokens of each sequence that the mask (N, L) keeps, in float32 for
// narrower types: (N, L, E) to (N, E). Sentence encoders are trained with it.
Tensor mean_pooling(const Tensor& hidden, const Tensor& attention_mask);

}  // namespace mytorch::nn::models
