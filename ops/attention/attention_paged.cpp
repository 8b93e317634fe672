// Attention of keys and values in pages, as caches of them lie in memory.
#include <cmath>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/attention_forward.h"
#include "mytorch/ops/logical_or.h"
#include "ops/attention/attention.h"
#include "ops/precision.h"

namespace mytorch {

using namespace attention;

namespace {

// Returns the keys or values of every slot of the table, (B, K, M * N, width).
Tensor gathered(const Tensor& pages, const Tensor& table) {
  const int64_t batch = table.size(0), slots = table.size(1) * pages.size(1);
  if (batch * slots == 0 || pages.size(0) == 0) {
    return pages.reshape({-1, pages.size(2), pages.size(3)})
        .narrow(0, 0, 0)
        .reshape({0, pages.size(2), pages.size(3)})
        .unsqueeze(0)
        .expand({batch, 0, pages.size(2), pages.size(3)})
        .transpose(1, 2);
  }
  return pages.index_select(0, table.reshape({-1}))
      .reshape({batch, slots, pages.size(2), pages.size(3)})
      .transpose(1, 2);
}

}  // namespace

namespace shape {

Specs<2> attention_paged(const Tensor& query, const Tensor& key_pages, const Tensor& value_pages,
                         const Tensor& block_table, const Tensor& lengths, const Tensor& slopes,
                         int64_t left, int64_t right, double softcap, double scale) {
  const char* op = "attention_paged";
  check_type(query.is_floating_point() && query.dtype() == key_pages.dtype() &&
                 query.dtype() == value_pages.dtype(),
             op, "query, key_pages and value_pages are ", query.dtype(), ", ", key_pages.dtype(),
             " and ", value_pages.dtype(), ": they must be of one floating type");
  check_index_type(block_table, "block_table", op);
  check_index_type(lengths, "lengths", op);
  check_shape(query.dim() == 4 && key_pages.dim() == 4 && value_pages.dim() == 4, op, "query ",
              query.sizes(), ", key_pages ", key_pages.sizes(), " and value_pages ",
              value_pages.sizes(), " are not (B, H, L, D), (P, N, K, D) and (P, N, K, V)");
  const IntList q = query.sizes(), k = key_pages.sizes(), v = value_pages.sizes();
  check_shape(k[0] == v[0] && k[1] == v[1] && k[2] == v[2] && q[3] == k[3], op, "query ", q,
              ", key_pages ", k, " and value_pages ", v,
              " are not (B, H, L, D), (P, N, K, D) and (P, N, K, V)");
  check_shape(k[2] == 0 ? q[1] == 0 : q[1] % k[2] == 0, op, q[1],
              " query heads do not divide among ", k[2], " key heads");
  check_shape(block_table.dim() == 2 && block_table.size(0) == q[0], op, "block_table has shape ",
              block_table.sizes(), ": it must have a row of pages for each of the ", q[0],
              " sequences");
  check_shape(lengths.dim() == 1 && lengths.size(0) == q[0], op, "lengths have shape ",
              lengths.sizes(), ": give one length for each of the ", q[0], " sequences");
  if (slopes.defined()) {
    const IntList sizes = slopes.sizes();
    check_shape((sizes.size() == 1 && sizes[0] == q[1]) ||
                    (sizes.size() == 2 && sizes[0] == q[0] && sizes[1] == q[1]),
                op, "slopes have shape ", sizes, ": give one per head, (", q[1], ") or (", q[0],
                ", ", q[1], ")");
    const ScalarType wide = wide_type(query.dtype());
    check_type(slopes.dtype() == wide, op, "slopes are ", slopes.dtype(), ": for ", query.dtype(),
               " queries they must be ", wide);
  }
  check_band(left, "left", op);
  check_band(right, "right", op);
  check_value(softcap >= 0 && std::isfinite(softcap), op, "softcap is ", softcap,
              ": give a positive number, or 0 for none");
  check_value(std::isfinite(scale), op, "scale is ", scale, ": it must be finite");
  return {like(query, {q[0], q[1], q[2], v[3]}),
          like(query, {q[0], q[1], q[2]}, wide_type(query.dtype()))};
}

}  // namespace shape

namespace composite {

Tensors<2> attention_paged(const Tensor& query, const Tensor& key_pages, const Tensor& value_pages,
                           const Tensor& block_table, const Tensor& lengths, const Tensor& slopes,
                           int64_t left, int64_t right, double softcap, double scale) {
  const Device device = query.device();
  const int64_t rows = query.size(2), slots = key_pages.size(1);
  const auto numbers = [&](int64_t n) { return mytorch::arange(n, kInt64, device); };
  // Entries past a length may be anything.
  const Tensor length = lengths.to(kInt64).unsqueeze(1);  // (B, 1)
  const Tensor table =
      block_table.to(kInt64).masked_fill(numbers(block_table.size(1)) * slots >= length, 0);
  const Tensor key = gathered(key_pages, table);
  const int64_t keys = key.size(2);
  const Tensor unused = numbers(keys) >= length;  // (B, S)
  const Tensor value =
      gathered(value_pages, table).masked_fill(unused.unsqueeze(1).unsqueeze(-1), 0);
  // Row minus key, (B, 1, L, S)
  const Tensor distance =
      (length - rows + numbers(rows)).unsqueeze(1).unsqueeze(-1) - numbers(keys);
  Tensor hidden = unused.unsqueeze(1).unsqueeze(1);
  if (left >= 0) hidden = mytorch::logical_or(hidden, distance > left);
  if (right >= 0) hidden = mytorch::logical_or(hidden, distance < -right);
  if (!slopes.defined()) {
    const auto [output, logsumexp, draw] = mytorch::attention_forward(
        query, key, value, hidden.logical_not(), {}, -1, -1, 0, softcap, scale, 0, uncounted());
    return {output.contiguous(), logsumexp};
  }
  const Tensor by_head = (slopes.dim() == 1 ? slopes.unsqueeze(0) : slopes).unsqueeze(-1);
  const Tensor added = (by_head.unsqueeze(-1) * -mytorch::abs(distance).to(slopes.dtype()))
                           .masked_fill(hidden, -kInfinity);
  const auto [output, logsumexp, draw] =
      mytorch::attention_forward(widened(query), widened(key), widened(value), added, {}, -1, -1, 0,
                                 softcap, scale, 0, uncounted());
  return {output.to(query.dtype()).contiguous(), logsumexp};
}

}  // namespace composite
}  // namespace mytorch
