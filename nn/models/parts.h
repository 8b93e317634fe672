// What the models have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/nn/linear.h"
#include "mytorch/nn/models/pretrained.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::models {

using Activation = Tensor (*)(const Tensor&);

// Returns the function with Hugging Face's name. Throws Error(kValue), listing the names, for
// another one.
Activation activation_of(const char* what, const std::string& name);

// Returns activation(linear(x)), in one operator if the activation is GELU.
Tensor activated(Activation activation, Linear& linear, const Tensor& x);
// Returns activation(gate) * up, in one pass if the activation is SiLU.
Tensor gated(Activation activation, const Tensor& gate, const Tensor& up);

// Throws Error(kValue) unless `heads` divide `width`.
void check_heads(const char* what, const char* width_name, int64_t width, const char* heads_name,
                 int64_t heads);
// Throws Error(kShape) unless `ids` has two dimensions.
void check_ids(const char* what, const Tensor& ids);
// Throws Error(kShape) if `count` tokens are more than `longest`.
void check_length(const char* what, int64_t count, const char* limit, int64_t longest);

// Returns the first rows of a table, (count, width).
Tensor first_rows(Embedding& table, int64_t count);

// Draws the weight from the normal distribution, and zeros the bias.
void reset_normal(Linear& linear, double std);

// Splits the features of (N, L, heads * D) into (N, heads, L, D), and joins them.
Tensor split_heads(const Tensor& x, int64_t heads);
Tensor join_heads(const Tensor& x);
// Splits (N, L, 3 * heads * D) into queries, keys and values (N, heads, L, D). Unlike that of
// chunk, the gradient is one concatenation, which copies nothing after attention, and fills no
// memory with zeros.
std::vector<Tensor> split_qkv(const Tensor& packed, int64_t heads);

// Returns the mean cross entropy of logits (N, L, V) and targets (N, L).
Tensor token_loss(const char* what, const Tensor& logits, const Tensor& targets);
// Returns the same of the logits head(features), which never exist as a whole.
Tensor chunked_token_loss(const char* what, const Tensor& features, const Linear& head,
                          const Tensor& targets);

// Returns the mean cross entropy of a language model's logits, head(body(ids)), and the targets.
template <class Model, class Body>
Tensor language_loss(const char* what, Model& model, Body& body, const Tensor& ids,
                     const Tensor& targets, const TokenLossArgs& options) {
  if (options.chunked) return chunked_token_loss(what, body(ids), model.lm_head, targets);
  return token_loss(what, model(ids), targets);
}

}  // namespace mytorch::nn::models
