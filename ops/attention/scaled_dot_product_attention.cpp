// scaled_dot_product_attention: attention whose leading dimensions broadcast.
#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/attention_forward.h"
#include "ops/attention/attention.h"
#include "ops/geometry.h"

namespace mytorch {

using namespace attention;

namespace composite {

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa) {
  const char* op = "scaled_dot_product_attention";
  check_shape(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2 &&
                  query.size(-1) == key.size(-1) && key.size(-2) == value.size(-2),
              op, "query ", query.sizes(), ", key ", key.sizes(), " and value ", value.sizes(),
              " are not (..., L, E), (..., S, E) and (..., S, V)");
  check_types(query, key, value, attn_mask, op);
  check_value(!is_causal || !attn_mask.defined(), op, "give either attn_mask or is_causal");
  check_probability(dropout_p, op);

  // The leading dimensions broadcast. The heads, the last of them, may be grouped instead.
  const auto leading = [](const Tensor& x, int64_t n) {
    return x.dim() > n ? geometry::leading_sizes(x, n) : Dims();
  };
  const auto heads = [](const Tensor& x) { return x.dim() > 2 ? x.size(-3) : 1; };
  int64_t query_heads = heads(query), key_heads = heads(key);
  if (enable_gqa && query.dim() > 2) {
    check_shape(heads(value) == key_heads && key_heads != 0 && query_heads % key_heads == 0, op,
                query_heads, " query heads do not divide among the heads of key ", key.sizes(),
                " and value ", value.sizes());
  } else {
    const Dims all = broadcast_shapes(
        {query_heads}, as_list(broadcast_shapes({key_heads}, {heads(value)}, op)), op);
    query_heads = all[0];
    // One head of keys and values for all queries needs no expansion.
    if (key_heads != 1 || heads(value) != 1 || query_heads == 0) key_heads = query_heads;
  }
  Dims batch = broadcast_shapes(as_list(leading(query, 3)), as_list(leading(key, 3)), op);
  batch = broadcast_shapes(as_list(batch), as_list(leading(value, 3)), op);
  // Returns `x` as (B, heads, rows, columns), expanded by strides of 0.
  const auto canonical = [&](Tensor x, int64_t n, int64_t rows, int64_t columns) {
    while (x.dim() < 4) x = x.unsqueeze(0);
    Dims sizes = batch;
    if (sizes.empty()) sizes = {1};
    sizes.insert(sizes.end(), {n, rows, columns});
    if (x.sizes() != as_list(sizes)) x = x.expand(as_list(sizes));
    if (x.dim() == 4) return x;
    int64_t b = 1;
    for (const int64_t size : batch) b *= size;
    return x.reshape({b, n, rows, columns});
  };
  const int64_t rows = query.size(-2), keys = key.size(-2);
  const Tensor q = canonical(query, query_heads, rows, query.size(-1));
  const Tensor k = canonical(key, key_heads, keys, key.size(-1));
  const Tensor v = canonical(value, key_heads, keys, value.size(-1));
  Tensor mask = attn_mask;
  if (mask.defined()) {
    Dims scores = batch;
    scores.insert(scores.end(), {query_heads, rows, keys});
    if (static_cast<size_t>(mask.dim()) > scores.size() ||
        !broadcasts_to(mask.sizes(), as_list(scores))) {
      refuse(ErrorCode::kShape, op, "attn_mask, of shape ", mask.sizes(),
             ", does not broadcast to ", as_list(scores));
    }
    while (mask.dim() < 4) mask = mask.unsqueeze(0);
    if (mask.dim() > 4) {
      mask = canonical(mask, mask.size(-3), mask.size(-2), mask.size(-1));
    }
  }
  const double factor =
      scale.value_or(1 / std::sqrt(static_cast<double>(std::max<int64_t>(query.size(-1), 1))));
  const std::optional<Generator> generator =
      dropout_p == 0 ? std::optional<Generator>(uncounted()) : std::nullopt;
  const Tensor result = std::get<0>(mytorch::attention_forward(
      q, k, v, mask, {}, -1, is_causal ? 0 : -1, 0, 0, factor, dropout_p, generator));
  Dims sizes = query.dim() > 2 || key.dim() > 2 || value.dim() > 2 ? batch : Dims();
  if (query.dim() > 2 || key.dim() > 2 || value.dim() > 2) sizes.push_back(query_heads);
  sizes.insert(sizes.end(), {rows, value.size(-1)});
  return result.sizes() == as_list(sizes) ? result : result.reshape(as_list(sizes));
}

}  // namespace composite
}  // namespace mytorch
