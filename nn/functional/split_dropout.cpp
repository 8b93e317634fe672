// Dropout of tensors that are split over ranks. Every rank draws the numbers of the whole tensor,
// which depend on the positions of elements alone, and keeps its own.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/nn/functional.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/all.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/logical_not.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/native_dropout.h"
#include "mytorch/ops/native_dropout_backward.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/triu.h"
#include "mytorch/ops/zeros.h"
#include "nn/split.h"

namespace mytorch::nn {
namespace {

// Returns which elements of a tensor dropout keeps, as bools. Takes one call of the generator.
Tensor kept_elements(IntList sizes, double p, const std::optional<Generator>& generator,
                     Device device) {
  const Tensor any = mytorch::zeros({1}, kBFloat16, device).expand(sizes);
  return std::get<1>(mytorch::native_dropout(any, p, true, generator));
}

Tensor drop(const Tensor& x, const Tensor& kept, double p) {
  const double scale = p == 1 ? 0 : 1 / (1 - p);
  if (!x.is_complex()) return mytorch::native_dropout_backward(x, kept, scale);
  return mytorch::mul(x, mytorch::mul(kept.to(to_real(x.dtype())), scale));
}

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Returns softmax(q @ k.mT * scale + mask), (N, heads, L, S); 0 in rows that see no key.
Tensor attention_weights(const Tensor& query, const Tensor& key, const Tensor& mask,
                         const functional::AttentionArgs& options) {
  const double width = static_cast<double>(std::max<int64_t>(query.size(3), 1));
  const Tensor scaled = mytorch::mul(query, options.scale.value_or(1 / std::sqrt(width)));
  Tensor scores = mytorch::matmul(scaled.unflatten(1, {key.size(1), -1}), key.unsqueeze(2).mT());
  scores = scores.flatten(1, 2);
  if (options.is_causal) {
    const Tensor later =
        mytorch::triu(mytorch::ones({query.size(2), key.size(2)}, kBool, query.device()), 1);
    scores = scores.masked_fill(later, kNever);
  }
  if (!mask.defined()) return mytorch::softmax(scores, -1);
  scores = mask.dtype() == kBool ? scores.masked_fill(mytorch::logical_not(mask), kNever)
                                 : mytorch::add(scores, mask.to(scores.dtype()));
  // Scores of 0 keep the softmax, and so its gradient, finite.
  const Tensor blind = mytorch::all(mytorch::eq(scores.detach(), kNever), -1, true);
  return mytorch::softmax(scores.masked_fill(blind, 0), -1).masked_fill(blind, 0);
}

}  // namespace

Tensor part_of_dropout(const Tensor& x, double p, const std::optional<Generator>& generator,
                       int64_t dim, int64_t rank, int64_t ranks) {
  if (p == 0 || x.numel() == 0) return x;
  if (p == 1) return mytorch::mul(x, 0);  // as of mytorch::dropout, which draws nothing
  const int64_t at = dim < 0 ? dim + x.dim() : dim;
  if (at < 0 || at >= x.dim()) {
    fail(ErrorCode::kShape, "[dropout] a tensor of shape ", shape_str(x.sizes()),
         " is not split along dimension ", dim);
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  const int64_t n = sizes[static_cast<size_t>(at)];
  sizes[static_cast<size_t>(at)] = n * ranks;
  const Tensor kept = kept_elements(sizes, p, generator, x.device());
  return drop(x, kept.narrow(at, n * rank, n), p);
}

Tensor attention_of_part(const Tensor& query, const Tensor& key, const Tensor& value,
                         const functional::AttentionArgs& options, const Split& split) {
  functional::AttentionArgs own = options;
  const int64_t heads = query.dim() == 4 ? query.size(1) : 0;
  if (Tensor& mask = own.attn_mask;
      mask.defined() && mask.dim() >= 3 && mask.size(-3) == heads * split.ranks()) {
    mask = mask.narrow(-3, heads * split.rank(), heads);
  }
  const bool grouped = key.dim() == 4 && value.dim() == 4 && key.size(1) != 0 &&
                       heads % key.size(1) == 0 && value.size(1) == key.size(1);
  // That operator also reports what does not fit.
  if (options.dropout_p == 0 || query.numel() == 0 || !grouped) {
    return functional::scaled_dot_product_attention(query, key, value, own);
  }
  const ScalarType type = query.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const Tensor weights = attention_weights(query.to(type), key.to(type), own.attn_mask, own);
  // The kernels of attention draw four numbers at a time, and begin anew with each row.
  const int64_t rows = query.size(2), keys = key.size(2), drawn = (keys + 3) / 4 * 4;
  const Tensor kept = kept_elements({query.size(0), heads * split.ranks(), rows, drawn},
                                    options.dropout_p, std::nullopt, query.device())
                          .narrow(1, heads * split.rank(), heads)
                          .narrow(3, 0, keys);
  const Tensor dropped = drop(weights, kept, options.dropout_p).unflatten(1, {key.size(1), -1});
  return mytorch::matmul(dropped, value.to(type).unsqueeze(2)).flatten(1, 2).to(query.dtype());
}

}  // namespace mytorch::nn
