#include "mytorch/nn/models/bert.h"

#include <algorithm>
#include <tuple>

#include "mytorch/nn/init.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/clamp_min.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/squeeze.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/tanh.h"
#include "mytorch/ops/unsqueeze.h"
#include "nn/functional/options.h"
#include "nn/models/config_fields.h"
#include "nn/models/parts.h"

namespace mytorch::nn::models {
namespace {

void visit(BertConfig& config, ConfigFields& fields) {
  fields.require("model_type", "bert");
  fields("vocab_size", config.vocab_size);
  fields("hidden_size", config.hidden_size);
  fields("num_hidden_layers", config.num_hidden_layers);
  fields("num_attention_heads", config.num_attention_heads);
  fields("intermediate_size", config.intermediate_size);
  fields("hidden_act", config.hidden_act);
  fields("hidden_dropout_prob", config.hidden_dropout_prob);
  fields("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
  fields("max_position_embeddings", config.max_position_embeddings);
  fields("type_vocab_size", config.type_vocab_size);
  fields("initializer_range", config.initializer_range);
  fields("layer_norm_eps", config.layer_norm_eps);
  fields("pad_token_id", config.pad_token_id);
  fields.refuse_unless("position_embedding_type", "absolute");
  fields.refuse_unless("is_decoder", false);
  fields.refuse_unless("add_cross_attention", false);
}

const BertConfig& checked(const BertConfig& config) {
  check_at_least("BertConfig", 1,
                 {{"vocab_size", config.vocab_size},
                  {"hidden_size", config.hidden_size},
                  {"num_hidden_layers", config.num_hidden_layers},
                  {"num_attention_heads", config.num_attention_heads},
                  {"intermediate_size", config.intermediate_size},
                  {"max_position_embeddings", config.max_position_embeddings},
                  {"type_vocab_size", config.type_vocab_size}});
  check_heads("BertConfig", "hidden_size", config.hidden_size, "num_attention_heads",
              config.num_attention_heads);
  check_probability("BertConfig", config.attention_probs_dropout_prob);
  return config;
}

LayerNorm norm_of(const BertConfig& config) {
  return LayerNorm(config.hidden_size, {.eps = config.layer_norm_eps});
}

Linear linear_of(const BertConfig& config, int64_t in_features, int64_t out_features) {
  Linear linear(in_features, out_features);
  reset_normal(linear, config.initializer_range);
  return linear;
}

std::optional<int64_t> padding_of(const BertConfig& config) {
  if (config.pad_token_id < 0) return {};
  return config.pad_token_id;
}

Embedding embedding_of(const BertConfig& config, int64_t rows,
                       std::optional<int64_t> padding_idx = {}) {
  Embedding embedding(rows, config.hidden_size, {.padding_idx = padding_idx});
  init::normal_(embedding.weight, 0, config.initializer_range);
  if (padding_idx) init::zeros_(embedding.weight.detach().select(0, *padding_idx));
  return embedding;
}

void check_like(const char* name, const Tensor& tensor, const Tensor& input_ids) {
  if (tensor.defined() && !(tensor.sizes() == input_ids.sizes())) {
    fail(ErrorCode::kShape, "[BertModel] ", name, " has shape ", shape_str(tensor.sizes()),
         ", expected that of input_ids, ", shape_str(input_ids.sizes()));
  }
}

}  // namespace

BertConfig BertConfig::read(const std::string& path) {
  ConfigFields fields = ConfigFields::read("BertConfig", config_path(path));
  BertConfig config;
  visit(config, fields);
  return config;
}

std::string BertConfig::json() const {
  ConfigFields fields = ConfigFields::write();
  fields.write_list("architectures", "BertModel");
  BertConfig config = *this;
  visit(config, fields);
  return fields.json();
}

BertEmbeddings::BertEmbeddings(const BertConfig& config)
    : word_embeddings(embedding_of(config, config.vocab_size, padding_of(config))),
      position_embeddings(embedding_of(config, config.max_position_embeddings)),
      token_type_embeddings(embedding_of(config, config.type_vocab_size)),
      layer_norm(norm_of(config)),
      dropout(config.hidden_dropout_prob) {
  register_module("word_embeddings", word_embeddings);
  register_module("position_embeddings", position_embeddings);
  register_module("token_type_embeddings", token_type_embeddings);
  register_module("LayerNorm", layer_norm);
  register_module("dropout", dropout);
}

Tensor BertEmbeddings::forward(const Tensor& input_ids, const Tensor& token_type_ids) {
  Tensor offset = first_rows(position_embeddings, input_ids.size(1));
  offset = add(offset, token_type_ids.defined() ? token_type_embeddings(token_type_ids)
                                                : first_rows(token_type_embeddings, 1));
  return dropout(layer_norm(add(word_embeddings(input_ids), offset)));
}

BertSelfAttention::BertSelfAttention(const BertConfig& config)
    : query(linear_of(config, config.hidden_size, config.hidden_size)),
      key(linear_of(config, config.hidden_size, config.hidden_size)),
      value(linear_of(config, config.hidden_size, config.hidden_size)),
      num_heads_(config.num_attention_heads),
      dropout_(config.attention_probs_dropout_prob) {
  register_module("query", query);
  register_module("key", key);
  register_module("value", value);
}

HeadProjections BertSelfAttention::head_projections() {
  return {.inputs = {{&query, num_heads_}, {&key, num_heads_}, {&value, num_heads_}}};
}

Tensor BertSelfAttention::forward(const Tensor& input, const Tensor& mask) {
  const Tensor x = input_of_heads(*this, input);
  const std::vector<Tensor> qkv =
      split_qkv(Linear::joined({&query, &key, &value}, x), own_heads(*this, num_heads_));
  return join_heads(attention_of_heads(
      *this, qkv[0], qkv[1], qkv[2], {.attn_mask = mask, .dropout_p = training() ? dropout_ : 0}));
}

BertResidual::BertResidual(int64_t in_features, const BertConfig& config)
    : dense(linear_of(config, in_features, config.hidden_size)),
      layer_norm(norm_of(config)),
      dropout(config.hidden_dropout_prob) {
  register_module("dense", dense);
  register_module("LayerNorm", layer_norm);
  register_module("dropout", dropout);
}

Tensor BertResidual::forward(const Tensor& x, const Tensor& residual) {
  return std::get<0>(layer_norm(dropout(dense(x)), residual));
}

BertAttention::BertAttention(const BertConfig& config)
    : self(config), output(config.hidden_size, config) {
  register_module("self", self);
  register_module("output", output);
}

Tensor BertAttention::forward(const Tensor& x, const Tensor& mask) {
  return output(self(x, mask), x);
}

BertIntermediate::BertIntermediate(const BertConfig& config)
    : dense(linear_of(config, config.hidden_size, config.intermediate_size)),
      activation_(activation_of("BertConfig", config.hidden_act)) {
  register_module("dense", dense);
}

Tensor BertIntermediate::forward(const Tensor& x) { return activated(activation_, dense, x); }

BertLayer::BertLayer(const BertConfig& config)
    : attention(config), intermediate(config), output(config.intermediate_size, config) {
  register_module("attention", attention);
  register_module("intermediate", intermediate);
  register_module("output", output);
}

Tensor BertLayer::forward(const Tensor& x, const Tensor& mask) {
  const Tensor y = attention(x, mask);
  return output(intermediate(y), y);
}

BertEncoder::BertEncoder(const BertConfig& config) {
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) layer.push_back(BertLayer(config));
  register_module("layer", layer);
}

Tensor BertEncoder::forward(const Tensor& x, const Tensor& mask) {
  Tensor y = x;
  for (size_t i = 0; i < layer.size(); ++i) y = layer.at<BertLayer>(i)(y, mask);
  return y;
}

BertPooler::BertPooler(const BertConfig& config)
    : dense(linear_of(config, config.hidden_size, config.hidden_size)) {
  register_module("dense", dense);
}

Tensor BertPooler::forward(const Tensor& hidden) { return tanh(dense(select(hidden, 1, 0))); }

BertModel::BertModel(const BertConfig& config, bool add_pooling_layer)
    : embeddings(checked(config)), encoder(config), config_(config) {
  register_module("embeddings", embeddings);
  register_module("encoder", encoder);
  if (!add_pooling_layer) return;
  pooler = BertPooler(config);
  register_module("pooler", pooler);
}

BertOutput BertModel::forward(const Tensor& input_ids, const BertInputs& inputs) {
  check_ids("BertModel", input_ids);
  check_length("BertModel", input_ids.size(1), "max_position_embeddings",
               config_.max_position_embeddings);
  check_like("attention_mask", inputs.attention_mask, input_ids);
  check_like("token_type_ids", inputs.token_type_ids, input_ids);
  Tensor mask;
  if (inputs.attention_mask.defined()) {
    mask = unsqueeze(unsqueeze(inputs.attention_mask.to(kBool), 1), 1);
  }
  const Tensor hidden = encoder(embeddings(input_ids, inputs.token_type_ids), mask);
  return {hidden, pooler.is_empty() ? Tensor() : pooler(hidden)};
}

WeightLayout BertModel::weight_layout() const {
  std::vector<std::string> ignored{"embeddings.position_ids"};
  if (pooler.is_empty())
    ignored.insert(ignored.end(), {"pooler.dense.weight", "pooler.dense.bias"});
  return {.prefix = "bert.", .transposed = {}, .ignored = std::move(ignored)};
}

std::string BertModel::config_json() const { return config_.json(); }

BertModel BertModel::from_pretrained(const std::string& folder, const PretrainedArgs& options,
                                     bool add_pooling_layer) {
  return loaded(BertModel(BertConfig::read(folder), add_pooling_layer), folder, options);
}

Tensor mean_pooling(const Tensor& hidden, const Tensor& attention_mask) {
  if (hidden.dim() != 3 || attention_mask.dim() != 2 || attention_mask.size(0) != hidden.size(0) ||
      attention_mask.size(1) != hidden.size(1)) {
    fail(ErrorCode::kShape, "[mean_pooling] hidden has shape ", shape_str(hidden.sizes()),
         " and attention_mask ", shape_str(attention_mask.sizes()),
         ", expected (N, L, E) and (N, L)");
  }
  const bool narrow_type = hidden.dtype() == kFloat16 || hidden.dtype() == kBFloat16;
  const Tensor x = narrow_type ? hidden.to(kFloat32) : hidden;
  // Any number but 0 keeps a token.
  const Tensor weights = unsqueeze(attention_mask.to(kBool).to(x.dtype()), 1);
  return div(squeeze(matmul(weights, x), 1), clamp_min(sum(weights, -1), 1));
}

}  // namespace mytorch::nn::models
