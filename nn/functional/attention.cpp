#include "nn/functional/attention.h"

#include <cmath>
#include <limits>
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

namespace mytorch::nn {
namespace {

// The masks of all heads and samples as one, which broadcasts to (N, heads, L, S): bool, true for
// what is left out, or numbers to add. Undefined without masks.
class CombinedMask {
 public:
  CombinedMask(ScalarType dtype) : dtype_(dtype) {}
  void combine(const Tensor& mask) {
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

// Throws unless the weights have the shapes that the options and each other ask for.
void check_weights(const char* name, const ForwardArgs& o, int64_t e, int64_t kdim, int64_t vdim) {
  check_at_least(name, 1, {{"num_heads", o.num_heads}});
  if (e % o.num_heads != 0) {
    fail(ErrorCode::kValue, "[", name, "] ", o.num_heads, " heads do not divide embed_dim ", e);
  }
  if (o.bias_k.defined() != o.bias_v.defined()) {
    fail(ErrorCode::kValue, "[", name, "] give both bias_k and bias_v, or neither");
  }
  check_shape(name, "in_proj_bias", o.in_proj_bias, {3 * e});
  check_shape(name, "bias_k", o.bias_k, {1, 1, e});
  check_shape(name, "bias_v", o.bias_v, {1, 1, e});
  if (o.use_separate_proj_weight) {
    for (const auto& [weight, what, width] : {std::tuple{&o.q_proj_weight, "q_proj_weight", e},
                                              {&o.k_proj_weight, "k_proj_weight", kdim},
                                              {&o.v_proj_weight, "v_proj_weight", vdim}}) {
      if (!weight->defined()) fail(ErrorCode::kValue, "[", name, "] ", what, " is undefined");
      check_shape(name, what, *weight, {e, width});
    }
  } else if (!o.in_proj_weight.defined()) {
    fail(ErrorCode::kValue, "[", name,
         "] in_proj_weight is undefined: give it, or "
         "use_separate_proj_weight with q_proj_weight, k_proj_weight and v_proj_weight");
  } else {
    check_shape(name, "in_proj_weight", o.in_proj_weight, {3 * e, e});
  }
}

}  // namespace

std::tuple<Tensor, Tensor> attend(const char* name, const Tensor& query, const Tensor& key,
                                  const Tensor& value, const ForwardArgs& options, bool batch_first,
                                  const AttentionFunction& attention) {
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
  check_weights(name, options, e, kdim, vdim);
  // The inputs as (N, length, features), and back.
  const auto batch = [&](const Tensor& x) {
    return dim == 2 ? x.unsqueeze(0) : batch_first ? x : x.transpose(0, 1);
  };
  std::vector<Tensor> projected;
  if (!options.use_separate_proj_weight && query.is_same(key) && query.is_same(value)) {
    projected = linear(batch(query), options.in_proj_weight, options.in_proj_bias).chunk(3, -1);
  } else {
    const auto project = [&](const Tensor& x, const Tensor& weight, int64_t part) {
      const auto rows = [&](const Tensor& all) {
        return all.defined() ? all.narrow(0, part * e, e) : Tensor();
      };
      return linear(batch(x),
                    options.use_separate_proj_weight ? weight : rows(options.in_proj_weight),
                    rows(options.in_proj_bias));
    };
    projected = {project(query, options.q_proj_weight, 0), project(key, options.k_proj_weight, 1),
                 project(value, options.v_proj_weight, 2)};
  }
  const int64_t n = projected[0].size(0), length = projected[0].size(1);
  if (projected[1].size(0) != n) {
    fail(ErrorCode::kShape, "[", name, "] query ", shape_str(query.sizes()), " and key ",
         shape_str(key.sizes()), " have different numbers of samples");
  }
  // The heads, (N, heads, length, width). Keys and values that are given have these already.
  const int64_t heads = options.num_heads, head_width = e / heads;
  const auto split = [&](const Tensor& x) {
    return x.unflatten(-1, {heads, head_width}).transpose(1, 2);
  };
  const auto given_or_split = [&](const char* what, const Tensor& given, const Tensor& x) {
    if (!given.defined()) return split(x);
    if (given.dim() != 3 || given.size(0) != n * heads || given.size(2) != head_width) {
      fail(ErrorCode::kShape, "[", name, "] ", what, " has shape ", shape_str(given.sizes()),
           ", expected (", n * heads, ", S, ", head_width, ")");
    }
    return given.unflatten(0, {n, heads});
  };
  const Tensor q = split(projected[0]);
  Tensor k = given_or_split("static_k", options.static_k, projected[1]);
  Tensor v = given_or_split("static_v", options.static_v, projected[2]);
  const int64_t keys = k.size(2);
  if (v.size(2) != keys) {
    fail(ErrorCode::kShape, "[", name, "] ", keys, " keys and ", v.size(2), " values");
  }
  for (const auto& [x, bias] : {std::pair{&k, &options.bias_k}, {&v, &options.bias_v}}) {
    std::vector<Tensor> parts{*x};
    if (bias->defined()) parts.push_back(split(bias->expand({n, 1, e})));
    if (options.add_zero_attn) {
      parts.push_back(zeros({n, heads, 1, head_width}, x->dtype(), x->device()));
    }
    if (parts.size() > 1) *x = cat(parts, 2);
  }
  const int64_t appended = k.size(2) - keys;

  CombinedMask mask(q.dtype());
  if (const Tensor& given = options.attn_mask; given.defined()) {
    const bool each = given.dim() == 3;
    check_shape(
        name, "attn_mask", given,
        each ? std::vector<int64_t>{n * heads, length, keys} : std::vector<int64_t>{length, keys});
    mask.combine(each ? given.unflatten(0, {n, heads}) : given);
  }
  if (const Tensor& given = options.key_padding_mask; given.defined()) {
    const Tensor rows = given.dim() == 1 && dim == 2 ? given.unsqueeze(0) : given;
    if (rows.dim() != 2 || rows.size(0) != n || rows.size(1) != keys) {
      fail(ErrorCode::kShape, "[", name, "] key_padding_mask has shape ", shape_str(given.sizes()),
           ", expected (", n, ", ", keys, ")");
    }
    mask.combine(rows.unsqueeze(1).unsqueeze(1));
  }
  bool causal = options.is_causal;
  if (causal && (mask.defined() || options.need_weights || appended > 0)) {
    mask.combine(triu(ones({length, keys}, kBool, q.device()), 1));
    causal = false;
  }
  mask.append_keys(appended);

  const double dropout_p = options.training ? options.dropout_p : 0;
  Tensor result, weights;
  if (attention) {
    if (mask.defined() || options.need_weights) {
      fail(ErrorCode::kValue, "[", name,
           "] with the option `attention`, pass need_weights = false, "
           "and no mask but is_causal");
    }
    result = attention(q, k, v, causal);
  } else if (options.need_weights) {
    Tensor scores = matmul(mul(q, 1 / std::sqrt(static_cast<double>(head_width))), k.mT());
    // Rows that see no key have weights of 0, as in scaled_dot_product_attention. Scores of 0 keep
    // the softmax, and so its gradient, finite there.
    Tensor blind;
    if (mask.defined()) {
      const Tensor numbers = mask.numbers();
      blind = all(eq(numbers.detach(), -std::numeric_limits<double>::infinity()), -1, true);
      scores = add(scores, numbers).masked_fill(blind, 0);
    }
    weights = softmax(scores, -1);
    if (blind.defined()) weights = weights.masked_fill(blind, 0);
    if (dropout_p > 0) weights = dropout(weights, dropout_p, true);
    result = matmul(weights, v);
    if (options.average_attn_weights) weights = weights.mean(1);
    if (dim == 2) weights = weights.squeeze(0);
  } else {
    result = mytorch::scaled_dot_product_attention(q, k, v, mask.kept(), dropout_p, causal);
  }
  result = result.transpose(1, 2).flatten(2);
  return {dim == 2 ? result.squeeze(0) : batch_first ? result : result.transpose(0, 1), weights};
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
