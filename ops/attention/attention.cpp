// Attention forward, with the checks of its arguments.
#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/thread_state.h"
#include "ops/creation.h"
#include "ops/geometry.h"
#include "ops/precision.h"

namespace mytorch {
namespace attention {
namespace {

// The largest distance of a band, so that sums of distances and positions do not overflow.
constexpr int64_t kFarthest = int64_t{1} << 48;
// The largest index of a random element that dropout draws.
constexpr int64_t kDrawn = int64_t{1} << 50;

}  // namespace

void check_types(const Tensor& query, const Tensor& key, const Tensor& value,
                 const Tensor& attn_mask, const char* op) {
  check_type(
      query.is_floating_point() && query.dtype() == key.dtype() && query.dtype() == value.dtype(),
      op, "query, key and value are ", query.dtype(), ", ", key.dtype(), " and ", value.dtype(),
      ": they must be of one floating type");
  if (attn_mask.defined()) {
    check_type(attn_mask.dtype() == kBool || attn_mask.dtype() == query.dtype(), op,
               "attn_mask is ", attn_mask.dtype(), ": it must be bool, or ", query.dtype(),
               " as query is");
  }
}

void check_probability(double p, const char* op) {
  check_value(p >= 0 && p <= 1, op, "dropout_p is ", p, ": give one in [0, 1]");
}

void check_band(int64_t distance, const char* name, const char* op) {
  check_value(distance >= -1 && distance < kFarthest, op, name, " is ", distance,
              ": give a number of keys, or -1 to see all keys on that side");
}

void check_index_type(const Tensor& x, const char* name, const char* op) {
  check_type(x.dtype() == kInt64 || x.dtype() == kInt32, op, name, " is ", x.dtype(),
             ": it must be int64 or int32");
}

void check_arguments(const Arguments& a, const char* op) {
  check_types(a.query, a.key, a.value, a.attn_mask, op);
  check_shape(a.query.dim() == 4 && a.key.dim() == 4 && a.value.dim() == 4, op, "query ",
              a.query.sizes(), ", key ", a.key.sizes(), " and value ", a.value.sizes(),
              " are not (B, H, L, D), (B, K, S, D) and (B, K, S, V)");
  const IntList q = a.query.sizes(), k = a.key.sizes(), v = a.value.sizes();
  check_shape(q[0] == k[0] && q[0] == v[0] && k[1] == v[1] && k[2] == v[2] && q[3] == k[3], op,
              "query ", q, ", key ", k, " and value ", v,
              " are not (B, H, L, D), (B, K, S, D) and (B, K, S, V)");
  check_shape(k[1] == 0 ? q[1] == 0 : q[1] % k[1] == 0, op, q[1],
              " query heads do not divide among ", k[1], " key heads");
  const ScalarType wide = wide_type(a.query.dtype());
  if (a.attn_mask.defined()) {
    const Dims scores = {q[0], q[1], q[2], k[2]};
    const IntList mask = a.attn_mask.sizes();
    check_shape(mask.size() == 4 && broadcasts_to(mask, as_list(scores)), op,
                "attn_mask, of shape ", mask, ", must have 4 dimensions that broadcast to ",
                as_list(scores));
  }
  if (a.slopes.defined()) {
    const IntList sizes = a.slopes.sizes();
    check_shape((sizes.size() == 1 && sizes[0] == q[1]) ||
                    (sizes.size() == 2 && sizes[0] == q[0] && sizes[1] == q[1]),
                op, "slopes have shape ", sizes, ": give one per head, (", q[1], ") or (", q[0],
                ", ", q[1], ")");
    check_type(a.slopes.dtype() == wide, op, "slopes are ", a.slopes.dtype(), ": for ",
               a.query.dtype(), " queries they must be ", wide);
  }
  check_band(a.left, "left", op);
  check_band(a.right, "right", op);
  check_value(a.diagonal > -kFarthest && a.diagonal < kFarthest, op, "diagonal is ", a.diagonal,
              ", farther than any key");
  check_value(a.softcap >= 0 && std::isfinite(a.softcap), op, "softcap is ", a.softcap,
              ": give a positive number, or 0 for none");
  check_value(std::isfinite(a.scale), op, "scale is ", a.scale, ": it must be finite");
  check_probability(a.dropout_p, op);
  if (a.dropout_p != 0) {
    const Wide rows = Wide{checked(Wide{q[0]} * q[1], op, "the number of rows")} * q[2];
    const Wide drawn = Wide{checked(rows, op, "the number of rows")} * (k[2] + 3);
    check_shape(drawn <= kDrawn, op, "dropout draws at most 2^50 numbers: query ", q, " and key ",
                k, " need more");
  }
}

namespace {

// Returns strides in the order of `like`, but with the elements of each row adjacent.
Dims row_strides(IntList sizes, const Tensor& like) {
  Dims order = to_dims(like.strides());
  for (size_t d = 0; d + 1 < order.size(); ++d) {
    order[d] = 2 * std::min(order[d], std::numeric_limits<int64_t>::max() / 4);
  }
  order.back() = 1;
  return packed_like(sizes, as_list(order));
}

}  // namespace

TensorSpec rows_like(const Tensor& x, Dims sizes) {
  TensorSpec spec = like(x, std::move(sizes));
  spec.strides = row_strides(as_list(spec.sizes), x);
  return spec;
}

Tensor placed(const Tensor& x, const Tensor& as) {
  Tensor typed = x.to(as.dtype());
  const Dims strides = row_strides(typed.sizes(), as);
  if (typed.strides() == as_list(strides)) return typed;
  Tensor result = Tensor::adopt(
      new_tensor_strided(typed.sizes(), as_list(strides), typed.dtype(), typed.device()));
  mytorch::copy_(result, typed);
  return result;
}

const Generator& uncounted() {
  static const Generator* const unused = [] {
    const LayerMask unrecorded(kLayerCapture);  // no generator of a function that is recorded
    return new Generator(0);
  }();
  return *unused;
}

}  // namespace attention

using namespace attention;

namespace shape {

Specs<3> attention_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                           const Tensor& attn_mask, const Tensor& slopes, int64_t left,
                           int64_t right, int64_t diagonal, double softcap, double scale,
                           double dropout_p, std::optional<Generator>) {
  const Arguments a{query, key,      value,   attn_mask, slopes,   left,
                    right, diagonal, softcap, scale,     dropout_p};
  check_arguments(a, "attention_forward");
  return {rows_like(query, a.output_sizes()), like(query, a.row_sizes(), wide_type(query.dtype())),
          like(query, {dropout_p != 0 ? 2 : 0}, kInt64)};
}

}  // namespace shape

namespace composite {

Tensors<3> attention_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                             const Tensor& attn_mask, const Tensor& slopes, int64_t left,
                             int64_t right, int64_t diagonal, double softcap, double scale,
                             double dropout_p, std::optional<Generator> generator) {
  const Arguments a{query, key,      value,   attn_mask, slopes,   left,
                    right, diagonal, softcap, scale,     dropout_p};
  const ScalarType wide = wide_type(query.dtype());
  const Device device = query.device();
  const Tensor draw =
      dropout_p != 0 ? last_draw(generator, device) : mytorch::empty({0}, kInt64, device);
  if (a.keys() == 0 || a.batch() * a.heads() * a.rows() == 0) {
    const Dims sizes = a.output_sizes(), rows = a.row_sizes();
    return {placed(mytorch::zeros(as_list(sizes), query.dtype(), device), query),
            mytorch::full(as_list(rows), -kInfinity, wide, device), draw};
  }
  const Operands x(a);
  const Tensor scores = Scores(a, x).masked;
  const Tensor top = scores.amax(-1, true);
  const Tensor finite = top.masked_fill(top == -kInfinity, 0);
  const Tensor logsumexp =
      (mytorch::log(mytorch::exp(scores - finite).sum(-1, true)) + finite).squeeze(-1);
  Tensor p = weights_of(scores, logsumexp);
  if (dropout_p != 0) p = p * dropout_factors(a, draw, wide);
  return {placed(join_heads(mytorch::matmul(p, x.v)), query), join_heads(logsumexp).contiguous(),
          draw};
}

}  // namespace composite
}  // namespace mytorch
