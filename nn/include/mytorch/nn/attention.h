// Attention as functions: `namespace F = mytorch::nn::functional`. Part of mytorch/nn/functional.h.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "mytorch/nn/options.h"
#include "mytorch/ops/scaled_dot_product_attention.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::functional {

struct AttentionArgs {
  Tensor attn_mask = {};
  double dropout_p = 0;
  bool is_causal = false;
  std::optional<double> scale = {};  // defaults to 1 / sqrt(width)
  bool enable_gqa = false;
};
template <std::same_as<AttentionArgs> O = AttentionArgs>
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const O& options) {
  return mytorch::scaled_dot_product_attention(query, key, value, options.attn_mask,
                                               options.dropout_p, options.is_causal, options.scale,
                                               options.enable_gqa);
}

// The weights and options of nn::MultiheadAttention, in libtorch's order.
struct MultiheadAttentionForwardArgs {
  int64_t embed_dim_to_check = 0;  // E, which the query must have; 0 is any
  int64_t num_heads = 1;
  Tensor in_proj_weight = {};  // (3 * E, E), of queries, keys and values
  Tensor in_proj_bias = {};    // (3 * E)
  Tensor bias_k = {};          // (1, 1, E): appended to each sequence of keys
  Tensor bias_v = {};
  bool add_zero_attn = false;   // appends a key and a value of zeros
  double dropout_p = 0;         // of the weights, in training
  Tensor out_proj_weight = {};  // (E, E)
  Tensor out_proj_bias = {};
  bool training = true;
  Tensor key_padding_mask = {};  // (N, S): true for keys to leave out, or numbers to add
  bool need_weights = true;      // if false, attention is one kernel and returns no weights
  Tensor attn_mask = {};         // (L, S) or (N * num_heads, L, S)
  bool use_separate_proj_weight = false;  // the next three in place of in_proj_weight
  Tensor q_proj_weight = {};              // (E, E)
  Tensor k_proj_weight = {};              // (E, kdim)
  Tensor v_proj_weight = {};              // (E, vdim)
  Tensor static_k = {};  // (N * num_heads, S, E / num_heads): in place of the projected keys
  Tensor static_v = {};
  bool average_attn_weights = true;
  bool is_causal = false;  // whether to also leave out the keys after each query
};
// See nn::MultiheadAttention, whose forward this is: queries (L, N, E), keys (S, N, kdim) and
// values (S, N, vdim), or all three without N. Throws Error(kShape or kValue).
//
//   auto [y, weights] = F::multi_head_attention_forward(
//       x, x, x, {.num_heads = 8, .in_proj_weight = w, .out_proj_weight = u});
std::tuple<Tensor, Tensor> multi_head_attention_forward(
    const Tensor& query, const Tensor& key, const Tensor& value,
    const MultiheadAttentionForwardArgs& options);

// libtorch's builder of the same options, the first ten of which its constructor takes.
MYTORCH_DEFINE_SETTERS(AttentionOptionSetters, MYTORCH_ATTENTION_OPTION_NAMES)
class MultiheadAttentionForwardFuncOptions
    : public AttentionOptionSetters<MultiheadAttentionForwardFuncOptions,
                                    MultiheadAttentionForwardArgs> {
 public:
  MultiheadAttentionForwardFuncOptions(int64_t embed_dim_to_check, int64_t num_heads,
                                       Tensor in_proj_weight, Tensor in_proj_bias, Tensor bias_k,
                                       Tensor bias_v, bool add_zero_attn, double dropout_p,
                                       Tensor out_proj_weight, Tensor out_proj_bias)
      : args_{.embed_dim_to_check = embed_dim_to_check,
              .num_heads = num_heads,
              .in_proj_weight = std::move(in_proj_weight),
              .in_proj_bias = std::move(in_proj_bias),
              .bias_k = std::move(bias_k),
              .bias_v = std::move(bias_v),
              .add_zero_attn = add_zero_attn,
              .dropout_p = dropout_p,
              .out_proj_weight = std::move(out_proj_weight),
              .out_proj_bias = std::move(out_proj_bias)} {}
  MultiheadAttentionForwardArgs& args() { return args_; }
  const MultiheadAttentionForwardArgs& args() const { return args_; }

 private:
  MultiheadAttentionForwardArgs args_;
};
inline std::tuple<Tensor, Tensor> multi_head_attention_forward(
    const Tensor& query, const Tensor& key, const Tensor& value,
    const MultiheadAttentionForwardFuncOptions& options) {
  return multi_head_attention_forward(query, key, value, options.args());
}

}  // namespace mytorch::nn::functional
