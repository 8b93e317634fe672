// Transformers as `mytorch plan` sees them: the sizes that costs depend on. Without heads a layer
// is a norm, a feed-forward layer and a residual; without a vocabulary there are neither embeddings
// nor a head nor its loss.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mytorch::plan {

// Products of sizes are computed as doubles, which do not overflow.
inline double number(int64_t n) { return static_cast<double>(n); }

struct Model {
  std::string name;
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t key_heads = 0;  // heads of keys and values
  int64_t head_width = 0;
  int64_t hidden = 0;  // features between the two products of a feed-forward layer
  int64_t vocabulary = 0;
  int64_t sequence = 0;    // tokens
  int64_t batch = 0;       // sequences of a step, on all GPUs
  int64_t experts = 0;     // feed-forward layers side by side, or 0
  int64_t top_k = 0;       // of which a token takes as many
  bool gated = false;      // whether feed-forward layers have three matrices
  bool biases = false;     // of products and norms
  bool tied = false;       // whether the embedding is the head, too
  bool positions = false;  // whether positions have an embedding
  // Whether the loss is computed together with the head, a part of the rows at a time
  // (linear_cross_entropy), so that logits are never kept.
  bool fused_loss = false;

  int64_t norms() const { return heads > 0 ? 2 : 1; }  // of a layer

  // ---- parameters ----
  double attention_parameters() const;  // of a layer
  double expert_parameters() const;     // of one feed-forward layer
  double norm_parameters() const;       // of one norm
  double layer_parameters() const;      // of a layer with all its experts
  double embedding_parameters() const;  // of tokens and positions
  double head_parameters() const;       // 0 if it is the embedding
  double parameters() const;

  // The operations of a step's products, forward and backward, as papers count them: attention
  // without regard to a causal mask, nothing for recomputation, and only the experts that a token
  // takes.
  double flops() const;
};

// Returns the model of that name, or of a Hugging Face config.json (GPT-2, Llama, Mixtral) if
// `name` ends with .json. Throws Error(kValue), listing the names, for an unknown one, and
// Error(kIo) for a file that cannot be read.
Model find_model(const std::string& name);
const std::vector<Model>& known_models();
// Throws Error(kValue) for sizes that contradict each other or are out of range. The heads and the
// vocabulary may be 0.
void check(const Model& model);

}  // namespace mytorch::plan
