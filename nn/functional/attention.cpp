#include "nn/functional/attention.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/nn/functional.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/all.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/logical_not.h"
#include "mytorch/ops/logical_or.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/triu.h"
#include "mytorch/ops/zeros.h"
#include "nn/functional/named.h"
#include "nn/functional/options.h"
#include "nn/split.h"

namespace mytorch::nn {
namespace {

// The masks of all heads and samples as one, which broadcasts to (N, heads, L, S): bool, true for
// what is left out, or numbers to add. Undefined without masks.
class CombinedMask {
 public:
  CombinedMask(ScalarType dtype) : dtype_(dtype) {}
  void combine(const Tensor& mask) {
    if (mask.dtype() != kBool && !mask.is_floating_point()) {
      fail(ErrorCode::kType, "[MultiheadAttention] a mask is ", dtype_name(mask.dtype()),
           ": give bools, true for keys to leave out, or floats to add to the scores");
    }
    if (!mask_.defined()) {
      mask_ = mask;
    } else if (mask_.dtype() == kBool && mask.dtype() == kBool) {
      mask_ = logical_or(mask_, mask);
    } else {
      mask_ = add(as_numbers(mask_), as_numbers(mask));
    }
  }
  bool defined() const { return mask_.defined(); }
  // Adds keys that are not left out.
  void append_keys(int64_t count) {
    if (!mask_.defined() || count == 0) return;
    std::vector<int64_t> sizes = mask_.sizes().vec();
    sizes.back() = count;
    mask_ = cat({mask_, zeros(sizes, mask_.dtype(), mask_.device())}, -1);
  }
  Tensor numbers() const { return as_numbers(mask_); }
  // As scaled_dot_product_attention takes it, where a bool mask keeps what is true.
  Tensor kept() const {
    if (!mask_.defined()) return mask_;
    return mask_.dtype() == kBool ? logical_not(mask_) : mask_.to(dtype_);
  }

 private:
  Tensor as_numbers(const Tensor& mask) const {
    if (mask.dtype() != kBool) return mask.to(dtype_);
    return zeros(mask.sizes(), dtype_, mask.device())
        .masked_fill(mask, -std::numeric_limits<double>::infinity());
  }

  ScalarType dtype_;
  Tensor mask_;
};

IntList leading(const Tensor& x) { return {x.sizes().data(), x.sizes().size() - 1}; }

// A tensor that must have a shape, or be undefined.
void check_shape(const char* name, const char* what, const Tensor& x, IntList expected) {
  if (!x.defined() || x.sizes() == expected) return;
  fail(ErrorCode::kShape, "[", name, "] ", what, " has shape ", shape_str(x.sizes()), ", expected ",
       shape_str(expected));
}

using ForwardArgs = functional::MultiheadAttentionForwardArgs;

// The heads that this rank has of all.
struct OwnHeads {
  const Split* split;  // null if it has all
  int64_t all, own = 0, width = 0;

  OwnHeads(const char* name, int64_t num_heads, int64_t e, const Split* of_ranks)
      : split(of_ranks), all(num_heads) {
    check_at_least(name, 1, {{"num_heads", num_heads}});
    if (e % num_heads != 0) {
      fail(ErrorCode::kValue, "[", name, "] ", num_heads, " heads do not divide embed_dim ", e);
    }
    own = split == nullptr ? all : all / split->ranks();
    width = e / all;
  }
  int64_t features() const { return own * width; }
  Tensor shared(const Tensor& x) const { return split == nullptr ? x : split->shared(x); }
  // Of a tensor that has a dimension for all heads.
  Tensor part(const Tensor& x, int64_t dim) const {
    return split == nullptr ? x : x.narrow(dim, own * split->rank(), own);
  }
};

// Throws unless the weights have the shapes that the options and each other ask for. `e` is the
// width of queries, and `p` that of all of this rank's heads.
void check_weights(const char* name, const ForwardArgs& o, int64_t e, int64_t p, int64_t kdim,
                   int64_t vdim) {
  if (o.bias_k.defined() != o.bias_v.defined()) {
    fail(ErrorCode::kValue, "[", name, "] give both bias_k and bias_v, or neither");
  }
  check_shape(name, "in_proj_bias", o.in_proj_bias, {3 * p});
  check_shape(name, "bias_k", o.bias_k, {1, 1, p});
  check_shape(name, "bias_v", o.bias_v, {1, 1, p});
  if (o.use_separate_proj_weight) {
    for (const auto& [weight, what, width] : {std::tuple{&o.q_proj_weight, "q_proj_weight", e},
                                              {&o.k_proj_weight, "k_proj_weight", kdim},
                                              {&o.v_proj_weight, "v_proj_weight", vdim}}) {
      if (!weight->defined()) fail(ErrorCode::kValue, "[", name, "] ", what, " is undefined");
      check_shape(name, what, *weight, {p, width});
    }
  } else if (!o.in_proj_weight.defined()) {
    fail(ErrorCode::kValue, "[", name,
         "] in_proj_weight is undefined: give it, or "
         "use_separate_proj_weight with q_proj_weight, k_proj_weight and v_proj_weight");
  } else {
    check_shape(name, "in_proj_weight", o.in_proj_weight, {3 * p, e});
  }
}

// The inputs as (N, length, features), and back.
struct BatchLayout {
  bool has_batch;
  bool batch_first;
  Tensor batched(const Tensor& x) const {
    return !has_batch ? x.unsqueeze(0) : batch_first ? x : x.transpose(0, 1);
  }
  Tensor as_given(const Tensor& x) const {
    return !has_batch ? x.squeeze(0) : batch_first ? x : x.transpose(0, 1);
  }
};

// Returns the heads. Throws unless inputs and weights have the shapes that they ask for.
OwnHeads check_inputs(const char* name, const Tensor& query, const Tensor& key, const Tensor& value,
                      const ForwardArgs& options, bool batch_first, const Split* split) {
  const int64_t dim = query.dim();
  const int64_t e = options.embed_dim_to_check > 0 ? options.embed_dim_to_check
                    : dim > 0                      ? query.size(-1)
                                                   : 0;
  const auto width = [&](const Tensor& weight) {
    return options.use_separate_proj_weight && weight.defined() && weight.dim() == 2
               ? weight.size(1)
               : e;
  };
  const int64_t kdim = width(options.k_proj_weight), vdim = width(options.v_proj_weight);
  if ((dim != 2 && dim != 3) || key.dim() != dim || value.dim() != dim ||
      !(leading(key) == leading(value)) || query.size(-1) != e || key.size(-1) != kdim ||
      value.size(-1) != vdim) {
    fail(ErrorCode::kShape, "[", name, "] query ", shape_str(query.sizes()), ", key ",
         shape_str(key.sizes()), " and value ", shape_str(value.sizes()), " are not (L, N, ", e,
         "), (S, N, ", kdim, ") and (S, N, ", vdim, "), or the same without N",
         batch_first ? ", where N precedes L and S" : "");
  }
  OwnHeads heads(name, options.num_heads, e, split);
  check_weights(name, options, e, heads.features(), kdim, vdim);
  return heads;
}

// Returns queries, keys and values, (N, length, features of the heads).
std::vector<Tensor> project(const Tensor& query, const Tensor& key, const Tensor& value,
                            const ForwardArgs& options, const BatchLayout& layout,
                            const OwnHeads& own) {
  const int64_t e = own.features();
  const Tensor q = own.shared(query);
  if (!options.use_separate_proj_weight && query.is_same(key) && query.is_same(value)) {
    return linear(layout.batched(q), options.in_proj_weight, options.in_proj_bias).chunk(3, -1);
  }
  const Tensor k = key.is_same(query) ? q : own.shared(key);
  const Tensor v = value.is_same(key) ? k : own.shared(value);
  const auto part = [&](const Tensor& x, const Tensor& weight, int64_t index) {
    const auto rows = [&](const Tensor& all) {
      return all.defined() ? all.narrow(0, index * e, e) : Tensor();
    };
    return linear(layout.batched(x),
                  options.use_separate_proj_weight ? weight : rows(options.in_proj_weight),
                  rows(options.in_proj_bias));
  };
  return {part(q, options.q_proj_weight, 0), part(k, options.k_proj_weight, 1),
          part(v, options.v_proj_weight, 2)};
}

// Queries, keys and values of all heads, (N, heads, length, width).
struct Heads {
  Tensor q, k, v;
  int64_t keys;  // without those that are appended
  int64_t appended() const { return k.size(2) - keys; }
};

// Keys and values that are given have their heads already.
Heads heads_of(const char* name, const std::vector<Tensor>& projected, const ForwardArgs& options,
               const OwnHeads& own) {
  const int64_t n = projected[0].size(0), heads = own.own, width = own.width;
  const auto split = [&](const Tensor& x) {
    return x.unflatten(-1, {heads, width}).transpose(1, 2);
  };
  const auto given_or_split = [&](const char* what, const Tensor& given, const Tensor& x) {
    if (!given.defined()) return split(x);
    if (given.dim() != 3 || given.size(0) != n * heads || given.size(2) != width) {
      fail(ErrorCode::kShape, "[", name, "] ", what, " has shape ", shape_str(given.sizes()),
           ", expected (", n * heads, ", S, ", width, ")");
    }
    return given.unflatten(0, {n, heads});
  };
  Heads result{.q = split(projected[0]),
               .k = given_or_split("static_k", options.static_k, projected[1]),
               .v = given_or_split("static_v", options.static_v, projected[2]),
               .keys = 0};
  result.keys = result.k.size(2);
  if (result.v.size(2) != result.keys) {
    fail(ErrorCode::kShape, "[", name, "] ", result.keys, " keys and ", result.v.size(2),
         " values");
  }
  for (const auto& [x, bias] :
       {std::pair{&result.k, &options.bias_k}, {&result.v, &options.bias_v}}) {
    std::vector<Tensor> parts{*x};
    if (bias->defined()) parts.push_back(split(bias->expand({n, 1, own.features()})));
    if (options.add_zero_attn) {
      parts.push_back(zeros({n, heads, 1, width}, x->dtype(), x->device()));
    }
    if (parts.size() > 1) *x = cat(parts, 2);
  }
  return result;
}

// The masks that are given, for the keys that are not appended.
CombinedMask given_masks(const char* name, const Heads& heads, const ForwardArgs& options,
                         const OwnHeads& own, bool has_batch) {
  const int64_t n = heads.q.size(0), length = heads.q.size(2), keys = heads.keys;
  CombinedMask mask(heads.q.dtype());
  if (const Tensor& given = options.attn_mask; given.defined()) {
    const bool each = given.dim() == 3;
    check_shape(name, "attn_mask", given,
                each ? std::vector<int64_t>{n * own.all, length, keys}
                     : std::vector<int64_t>{length, keys});
    mask.combine(each ? own.part(given.unflatten(0, {n, own.all}), 1) : given);
  }
  if (const Tensor& given = options.key_padding_mask; given.defined()) {
    const Tensor rows = given.dim() == 1 && !has_batch ? given.unsqueeze(0) : given;
    if (rows.dim() != 2 || rows.size(0) != n || rows.size(1) != keys) {
      fail(ErrorCode::kShape, "[", name, "] key_padding_mask has shape ", shape_str(given.sizes()),
           ", expected (", n, ", ", keys, ")");
    }
    mask.combine(rows.unsqueeze(1).unsqueeze(1));
  }
  return mask;
}

// Returns the result and the weights of each head.
std::tuple<Tensor, Tensor> attend_with_weights(const Heads& heads, const CombinedMask& mask,
                                               double dropout_p, const Split* split) {
  const auto width = static_cast<double>(heads.q.size(-1));
  Tensor scores = matmul(mul(heads.q, 1 / std::sqrt(width)), heads.k.mT());
  // Rows that see no key have weights of 0, as in scaled_dot_product_attention. Scores of 0 keep
  // the softmax, and so its gradient, finite there.
  Tensor blind;
  if (mask.defined()) {
    const Tensor numbers = mask.numbers();
    blind = all(eq(numbers.detach(), -std::numeric_limits<double>::infinity()), -1, true);
    scores = add(scores, numbers).masked_fill(blind, 0);
  }
  Tensor weights = softmax(scores, -1);
  if (blind.defined()) weights = weights.masked_fill(blind, 0);
  if (dropout_p > 0) {
    weights = split == nullptr
                  ? dropout(weights, dropout_p, true)
                  : part_of_dropout(weights, dropout_p, {}, 1, split->rank(), split->ranks());
  }
  return {matmul(weights, heads.v), weights};
}

}  // namespace

std::tuple<Tensor, Tensor> attend(const char* name, const Tensor& query, const Tensor& key,
                                  const Tensor& value, const ForwardArgs& options, bool batch_first,
                                  const AttentionFunction& attention, const Split* split) {
  const OwnHeads own = check_inputs(name, query, key, value, options, batch_first, split);
  const BatchLayout layout{.has_batch = query.dim() == 3, .batch_first = batch_first};
  const std::vector<Tensor> projected = project(query, key, value, options, layout, own);
  if (projected[1].size(0) != projected[0].size(0)) {
    fail(ErrorCode::kShape, "[", name, "] query ", shape_str(query.sizes()), " and key ",
         shape_str(key.sizes()), " have different numbers of samples");
  }
  const Heads heads = heads_of(name, projected, options, own);
  CombinedMask mask = given_masks(name, heads, options, own, layout.has_batch);
  bool causal = options.is_causal;
  if (causal && (mask.defined() || options.need_weights || heads.appended() > 0)) {
    const int64_t length = heads.q.size(2);
    mask.combine(triu(ones({length, heads.keys}, kBool, heads.q.device()), 1));
    causal = false;
  }
  mask.append_keys(heads.appended());

  const double dropout_p = options.training ? options.dropout_p : 0;
  Tensor result, weights;
  if (attention) {
    if (mask.defined() || options.need_weights) {
      fail(ErrorCode::kValue, "[", name,
           "] with the option `attention`, pass need_weights = false, "
           "and no mask but is_causal");
    }
    result = attention(heads.q, heads.k, heads.v, causal);
  } else if (options.need_weights) {
    std::tie(result, weights) = attend_with_weights(heads, mask, dropout_p, split);
    if (split != nullptr) weights = split->joined(weights, 1);
    if (options.average_attn_weights) weights = weights.mean(1);
    if (!layout.has_batch) weights = weights.squeeze(0);
  } else if (split != nullptr) {
    result = attention_of_part(
        heads.q, heads.k, heads.v,
        {.attn_mask = mask.kept(), .dropout_p = dropout_p, .is_causal = causal}, *split);
  } else {
    result = mytorch::scaled_dot_product_attention(heads.q, heads.k, heads.v, mask.kept(),
                                                   dropout_p, causal);
  }
  return {layout.as_given(result.transpose(1, 2).flatten(2)), weights};
}

namespace functional {

std::tuple<Tensor, Tensor> multi_head_attention_forward(const Tensor& query, const Tensor& key,
                                                        const Tensor& value,
                                                        const ForwardArgs& options) {
  const char* const name = "multi_head_attention_forward";
  return named(name, [&] {
    const auto [heads, weights] = attend(name, query, key, value, options, false);
    if (!options.out_proj_weight.defined()) {
      fail(ErrorCode::kValue, "[", name, "] out_proj_weight is undefined: give it, (E, E)");
    }
    return std::tuple{linear(heads, options.out_proj_weight, options.out_proj_bias), weights};
  });
}

}  // namespace functional
}  // namespace mytorch::nn
