// Attention layers and encoders.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "mytorch/nn/container.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

struct MultiheadAttentionArgs {
  double dropout = 0;  // of the weights, in training
  bool bias = true;
  bool batch_first = false;  // whether tensors are (N, L, E) instead of (L, N, E)
};
using MultiheadAttentionOptions = Options<MultiheadAttentionArgs, int64_t, int64_t>;

// As in PyTorch, and unlike in scaled_dot_product_attention, a bool mask is true for what is left
// out. A floating-point mask is added to the scores.
struct AttentionMasks {
  Tensor key_padding_mask = {};  // (N, S): keys to leave out
  Tensor attn_mask = {};         // (L, S) or (N * heads, L, S)
  bool is_causal = false;        // whether to also leave out the keys after each query
  bool need_weights = true;      // if false, attention is one kernel and returns no weights
  bool average_attn_weights = true;
};

// Attention with several heads (Vaswani et al., "Attention is all you need", NeurIPS 2017). Takes
// queries (L, N, E), keys (S, N, E) and values (S, N, E), or all three without N. Returns (L, N,
// E), and the weights (N, L, S), or (N, heads, L, S) unless `average_attn_weights`.
//
//   auto [y, weights] = attention(x, x, x, {.attn_mask = mask});
class MultiheadAttention final : public Callable<MultiheadAttention> {
 public:
  using Callable::Callable;
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, MultiheadAttentionArgs options = {});
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const AttentionMasks& masks = {});
  using Callable::operator();
  std::tuple<Tensor, Tensor> operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                        const AttentionMasks& masks) {
    return Callable::operator()(query, key, value, masks);
  }
  double flops(const Tensor& input, const Tensor& output) const override;
  std::string describe() const override;
  void reset_parameters();

  Tensor in_proj_weight;  // (3 * E, E), of queries, keys and values
  Tensor in_proj_bias;    // (3 * E); undefined without bias
  Linear out_proj{nullptr};

 private:
  int64_t num_heads_ = 0;
  double flops_ = 0;  // of the last forward with hooks: flops() does not see the keys
  MultiheadAttentionArgs options_;
};

enum class TransformerActivation { kReLU, kGELU };
TransformerActivation from_name(Str name, TransformerActivation);  // NOLINT: named by its type

struct TransformerEncoderLayerArgs {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  OneOf<TransformerActivation> activation = TransformerActivation::kReLU;  // or "relu", "gelu"
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;  // whether norms precede attention and feed-forward layers
  bool bias = true;
};
using TransformerEncoderLayerOptions = Options<TransformerEncoderLayerArgs, int64_t, int64_t>;

// Self-attention and a feed-forward layer, each with dropout, a residual and a norm. Keeps the
// shape of its input, (L, N, E).
class TransformerEncoderLayer final : public Callable<TransformerEncoderLayer> {
 public:
  using Callable::Callable;
  TransformerEncoderLayer(int64_t d_model, int64_t nhead, TransformerEncoderLayerArgs options = {});
  Tensor forward(const Tensor& src, const AttentionMasks& masks = {});
  using Callable::operator();
  Tensor operator()(const Tensor& src, const AttentionMasks& masks) {
    return Callable::operator()(src, masks);
  }

  MultiheadAttention self_attn{nullptr};
  Linear linear1{nullptr};
  Dropout dropout{nullptr};
  Linear linear2{nullptr};
  LayerNorm norm1{nullptr};
  LayerNorm norm2{nullptr};
  Dropout dropout1{nullptr};
  Dropout dropout2{nullptr};

 private:
  TransformerEncoderLayerArgs options_;
};

// `num_layers` copies of a layer, with their own parameters of the same values, and a norm if
// given.
class TransformerEncoder final : public Callable<TransformerEncoder> {
 public:
  using Callable::Callable;
  TransformerEncoder(const TransformerEncoderLayer& layer, int64_t num_layers,
                     std::optional<LayerNorm> norm = {});
  Tensor forward(const Tensor& src, const AttentionMasks& masks = {});
  using Callable::operator();
  Tensor operator()(const Tensor& src, const AttentionMasks& masks) {
    return Callable::operator()(src, masks);
  }

  ModuleList layers;  // "layers"; the norm is "norm"
};

}  // namespace mytorch::nn
