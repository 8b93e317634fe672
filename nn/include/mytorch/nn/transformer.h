// Attention layers, encoders and decoders (Vaswani et al., "Attention is all you need", NeurIPS
// 2017).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "mytorch/nn/container.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/options.h"
#include "mytorch/std_function.h"

namespace mytorch::nn {

// Attention of heads that are already projected, (N, heads, L, width) each, to (N, heads, L,
// width). In place of scaled_dot_product_attention, for instance over tokens that are split over
// ranks:
//
//   [group](const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal) {
//     return distributed::ring_attention(q, k, v, group, {.is_causal = is_causal});
//   }
using AttentionFunction =
    std::function<Tensor(const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal)>;

struct MultiheadAttentionArgs {
  double dropout = 0;  // of the weights, in training
  bool bias = true;
  bool add_bias_kv = false;          // appends a learned key and value to each sequence
  bool add_zero_attn = false;        // appends a key and value of zeros
  std::optional<int64_t> kdim = {};  // the features of keys; embed_dim by default
  std::optional<int64_t> vdim = {};  // the features of values; embed_dim by default
  bool batch_first = false;          // whether tensors are (N, L, E) instead of (L, N, E)
  // If given, computes attention. It takes no masks but `is_causal`, no dropout and no appended
  // keys, and returns no weights: such calls throw Error(kValue).
  AttentionFunction attention = {};
};
using MultiheadAttentionOptions = Options<MultiheadAttentionArgs, int64_t, int64_t>;

struct MultiheadAttentionAllArgs : MultiheadAttentionArgs {
  int64_t embed_dim = 0;
  int64_t num_heads = 0;
};

// As in PyTorch, and unlike in scaled_dot_product_attention, a bool mask is true for the keys to
// leave out. A floating-point mask is added to the scores.
struct AttentionMasks {
  Tensor key_padding_mask = {};  // (N, S): keys to leave out
  Tensor attn_mask = {};         // (L, S) or (N * heads, L, S)
  bool is_causal = false;        // whether to also leave out the keys after each query
  bool need_weights = true;      // if false, attention is one kernel and returns no weights
  bool average_attn_weights = true;
};

// Attention with several heads. Takes queries (L, N, E), keys (S, N, kdim) and values (S, N, vdim),
// or all three without N. Returns (L, N, E), and the weights (N, L, S), or (N, heads, L, S) unless
// `average_attn_weights`; S counts the keys that `add_bias_kv` and `add_zero_attn` append.
//
//   auto [y, weights] = attention(x, x, x, {.attn_mask = mask});
class MultiheadAttention final : public Callable<MultiheadAttention> {
 public:
  using Callable::Callable;
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, MultiheadAttentionArgs options = {});
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const AttentionMasks& masks = {});
  // The same with libtorch's arguments.
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const Tensor& key_padding_mask, bool need_weights = true,
                                     const Tensor& attn_mask = {},
                                     bool average_attn_weights = true);
  using Callable::operator();
  std::tuple<Tensor, Tensor> operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                        const AttentionMasks& masks);
  double flops(const Tensor& input, const Tensor& output) const override;
  std::string describe() const override;
  void reset_parameters();

  Tensor in_proj_weight;  // (3 * E, E), of queries, keys and values; undefined if kdim or vdim != E
  Tensor q_proj_weight;   // (E, E), in its place
  Tensor k_proj_weight;   // (E, kdim)
  Tensor v_proj_weight;   // (E, vdim)
  Tensor in_proj_bias;    // (3 * E); undefined without bias
  Tensor bias_k;          // (1, 1, E); undefined without add_bias_kv
  Tensor bias_v;
  Linear out_proj{nullptr};
  BuiltOptions<MultiheadAttentionAllArgs> options;

 private:
  double flops_ = 0;  // of the last forward with hooks: flops() does not see the keys
};

// The activation between the linear layers: "relu", "gelu", or a function of one tensor.
class TransformerActivation {
 public:
  // Throws Error(kValue) for any other text.
  template <class T>
  requires(detail::TextOtherThan<T, TransformerActivation>)
      TransformerActivation(const T& name)  // NOLINT
      : TransformerActivation(Str(name)) {}
  TransformerActivation(Str name);  // NOLINT
  template <class F>
  requires(!std::is_same_v<F, TransformerActivation> && !std::is_convertible_v<const F&, Str> &&
           std::is_invocable_r_v<Tensor, F&, const Tensor&>) TransformerActivation(F f)  // NOLINT
      : function_(std::move(f)) {}
  Tensor operator()(const Tensor& x) const { return function_(x); }

 private:
  std::function<Tensor(const Tensor&)> function_;
};

struct TransformerEncoderLayerArgs {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  TransformerActivation activation = "relu";
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;  // whether norms precede attention and feed-forward layers
  bool bias = true;
  AttentionFunction attention = {};  // of MultiheadAttention, whose weights are then not dropped
};
using TransformerEncoderLayerOptions = Options<TransformerEncoderLayerArgs, int64_t, int64_t>;

struct TransformerLayerAllArgs : TransformerEncoderLayerArgs {
  int64_t d_model = 0;
  int64_t nhead = 0;
};

// Self-attention and a feed-forward layer, each with dropout, a residual and a norm. Keeps the
// shape of its input, (L, N, E).
class TransformerEncoderLayer final : public Callable<TransformerEncoderLayer> {
 public:
  using Callable::Callable;
  TransformerEncoderLayer(int64_t d_model, int64_t nhead, TransformerEncoderLayerArgs options = {});
  Tensor forward(const Tensor& src, const AttentionMasks& masks = {});
  Tensor forward(const Tensor& src, const Tensor& src_mask, const Tensor& src_key_padding_mask = {},
                 bool is_causal = false);
  using Callable::operator();
  Tensor operator()(const Tensor& src, const AttentionMasks& masks);

  MultiheadAttention self_attn{nullptr};
  Linear linear1{nullptr};
  Dropout dropout{nullptr};
  Linear linear2{nullptr};
  LayerNorm norm1{nullptr};
  LayerNorm norm2{nullptr};
  Dropout dropout1{nullptr};
  Dropout dropout2{nullptr};
  BuiltOptions<TransformerLayerAllArgs> options;
};

// The norm of a stack's output: a module of any class, or none.
class StackNorm {
 public:
  StackNorm() = default;
  StackNorm(std::nullptr_t) {}                             // NOLINT
  StackNorm(AnyModule norm) : module_(std::move(norm)) {}  // NOLINT
  template <std::derived_from<Module> M>
  StackNorm(M norm) {  // NOLINT: `.norm = LayerNorm(512)`
    if (!norm.is_empty()) module_ = AnyModule(std::move(norm));
  }
  bool is_empty() const { return module_.is_empty(); }
  const AnyModule& module() const { return module_; }

 private:
  AnyModule module_;
};

struct TransformerEncoderArgs {
  StackNorm norm = {};  // of the output, unless empty
};
using TransformerEncoderOptions = Options<TransformerEncoderArgs, TransformerEncoderLayer, int64_t>;

// `num_layers` copies of a layer, with their own parameters of the same values, and a norm if
// given.
class TransformerEncoder final : public Callable<TransformerEncoder> {
 public:
  using Callable::Callable;
  TransformerEncoder(const TransformerEncoderLayer& layer, int64_t num_layers,
                     TransformerEncoderArgs options = {});
  TransformerEncoder(const TransformerEncoderLayer& layer, int64_t num_layers, LayerNorm norm)
      : TransformerEncoder(layer, num_layers, TransformerEncoderArgs{std::move(norm)}) {}
  Tensor forward(const Tensor& src, const AttentionMasks& masks = {});
  Tensor forward(const Tensor& src, const Tensor& src_mask, const Tensor& src_key_padding_mask = {},
                 bool is_causal = false);
  using Callable::operator();
  Tensor operator()(const Tensor& src, const AttentionMasks& masks);

  ModuleList layers;  // "layers"; the norm is "norm"
};

// Masks of a decoder, as in AttentionMasks. T is the length of `tgt`, S that of `memory`.
struct DecoderMasks {
  Tensor tgt_mask = {};                 // (T, T) or (N * heads, T, T)
  Tensor memory_mask = {};              // (T, S) or (N * heads, T, S)
  Tensor tgt_key_padding_mask = {};     // (N, T)
  Tensor memory_key_padding_mask = {};  // (N, S)
  bool tgt_is_causal = false;
  bool memory_is_causal = false;
};

using TransformerDecoderLayerArgs = TransformerEncoderLayerArgs;
using TransformerDecoderLayerOptions = Options<TransformerDecoderLayerArgs, int64_t, int64_t>;

// Self-attention, attention to `memory`, the output of an encoder, and a feed-forward layer, each
// with dropout, a residual and a norm. Keeps the shape of `tgt`, (T, N, E); `memory` is (S, N, E).
class TransformerDecoderLayer final : public Callable<TransformerDecoderLayer> {
 public:
  using Callable::Callable;
  TransformerDecoderLayer(int64_t d_model, int64_t nhead, TransformerDecoderLayerArgs options = {});
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks = {});
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask,
                 const Tensor& memory_mask = {}, const Tensor& tgt_key_padding_mask = {},
                 const Tensor& memory_key_padding_mask = {});
  using Callable::operator();
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks);

  MultiheadAttention self_attn{nullptr};
  MultiheadAttention multihead_attn{nullptr};
  Linear linear1{nullptr};
  Dropout dropout{nullptr};
  Linear linear2{nullptr};
  LayerNorm norm1{nullptr};
  LayerNorm norm2{nullptr};
  LayerNorm norm3{nullptr};
  Dropout dropout1{nullptr};
  Dropout dropout2{nullptr};
  Dropout dropout3{nullptr};
  BuiltOptions<TransformerLayerAllArgs> options;
};

using TransformerDecoderArgs = TransformerEncoderArgs;
using TransformerDecoderOptions = Options<TransformerDecoderArgs, TransformerDecoderLayer, int64_t>;

// `num_layers` copies of a layer, with their own parameters of the same values, and a norm if
// given.
class TransformerDecoder final : public Callable<TransformerDecoder> {
 public:
  using Callable::Callable;
  TransformerDecoder(const TransformerDecoderLayer& layer, int64_t num_layers,
                     TransformerDecoderArgs options = {});
  TransformerDecoder(const TransformerDecoderLayer& layer, int64_t num_layers, LayerNorm norm)
      : TransformerDecoder(layer, num_layers, TransformerDecoderArgs{std::move(norm)}) {}
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks = {});
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask,
                 const Tensor& memory_mask = {}, const Tensor& tgt_key_padding_mask = {},
                 const Tensor& memory_key_padding_mask = {});
  using Callable::operator();
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks);

  ModuleList layers;  // "layers"; the norm is "norm"
};

struct TransformerArgs {
  int64_t num_encoder_layers = 6;
  int64_t num_decoder_layers = 6;
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  TransformerActivation activation = "relu";
  TransformerEncoder custom_encoder = nullptr;  // unless empty, in place of the one made here
  TransformerDecoder custom_decoder = nullptr;
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;
  bool bias = true;
};

// With libtorch's constructors.
class TransformerOptions : public Options<TransformerArgs, int64_t, int64_t> {
 public:
  TransformerOptions(int64_t d_model = 512, int64_t nhead = 8) : Options(d_model, nhead) {}
  TransformerOptions(int64_t d_model, int64_t nhead, int64_t num_encoder_layers,
                     int64_t num_decoder_layers)
      : Options(d_model, nhead) {
    args().num_encoder_layers = num_encoder_layers;
    args().num_decoder_layers = num_decoder_layers;
  }
};

struct TransformerMasks {
  Tensor src_mask = {};                 // (S, S) or (N * heads, S, S)
  Tensor tgt_mask = {};                 // (T, T) or (N * heads, T, T)
  Tensor memory_mask = {};              // (T, S) or (N * heads, T, S)
  Tensor src_key_padding_mask = {};     // (N, S)
  Tensor tgt_key_padding_mask = {};     // (N, T)
  Tensor memory_key_padding_mask = {};  // (N, S)
  bool src_is_causal = false;
  bool tgt_is_causal = false;
  bool memory_is_causal = false;
};

// An encoder and a decoder, each with a norm of its output. Takes `src` (S, N, E) and `tgt` (T, N,
// E), and returns (T, N, E).
class Transformer final : public Callable<Transformer> {
 public:
  using Callable::Callable;
  explicit Transformer(int64_t d_model = 512, int64_t nhead = 8, TransformerArgs options = {});
  Tensor forward(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks = {});
  Tensor forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask,
                 const Tensor& tgt_mask = {}, const Tensor& memory_mask = {},
                 const Tensor& src_key_padding_mask = {}, const Tensor& tgt_key_padding_mask = {},
                 const Tensor& memory_key_padding_mask = {});
  using Callable::operator();
  Tensor operator()(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks);
  void reset_parameters();  // draws all matrices by init::xavier_uniform_

  // Returns a mask (size, size) to add to the scores: -infinity for the keys after each query, else
  // 0.
  static Tensor generate_square_subsequent_mask(int64_t size, Device device = kCPU,
                                                ScalarType dtype = kFloat32);

  TransformerEncoder encoder{nullptr};
  TransformerDecoder decoder{nullptr};

 private:
  int64_t d_model_ = 0;
  bool batch_first_ = false;
};

}  // namespace mytorch::nn
