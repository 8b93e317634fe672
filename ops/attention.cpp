// Attention: scaled_dot_product_attention, and the records with kernels below it. Formulas compute
// in float32 or double, in the shape (B, K, G, L, ...), where G query heads share each of the K
// heads of key and value.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/runtime/capture.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/attention_backward.h"
#include "mytorch/ops/attention_forward.h"
#include "mytorch/ops/attention_varlen_backward.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/logical_or.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/tanh.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "ops/creation.h"
#include "ops/geometry.h"
#include "ops/gradients.h"
#include "ops/precision.h"

namespace mytorch {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// The largest distance of a band, so that sums of distances and positions do not overflow.
constexpr int64_t kFarthest = int64_t{1} << 48;
// The largest index of a random element that dropout draws.
constexpr int64_t kDrawn = int64_t{1} << 50;

// The arguments that attention_forward and attention_backward share.
struct Arguments {
  const Tensor& query;
  const Tensor& key;
  const Tensor& value;
  const Tensor& attn_mask;
  const Tensor& slopes;
  int64_t left;
  int64_t right;
  int64_t diagonal;
  double softcap;
  double scale;
  double dropout_p;

  int64_t batch() const { return query.size(0); }
  int64_t heads() const { return query.size(1); }
  int64_t rows() const { return query.size(2); }
  int64_t keys() const { return key.size(2); }
  bool has_float_mask() const { return attn_mask.defined() && attn_mask.dtype() != kBool; }
  Dims output_sizes() const { return {batch(), heads(), rows(), value.size(3)}; }
  Dims row_sizes() const { return {batch(), heads(), rows()}; }
};

// ---- checks and shapes ----

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

// Returns strides in the order of `like`, but with the elements of each row adjacent.
Dims row_strides(IntList sizes, const Tensor& like) {
  Dims order = to_dims(like.strides());
  for (size_t d = 0; d + 1 < order.size(); ++d) {
    order[d] = 2 * std::min(order[d], std::numeric_limits<int64_t>::max() / 4);
  }
  order.back() = 1;
  return packed_like(sizes, as_list(order));
}

TensorSpec rows_like(const Tensor& x, Dims sizes) {
  TensorSpec spec = like(x, std::move(sizes));
  spec.strides = row_strides(as_list(spec.sizes), x);
  return spec;
}

// Returns `x` in the type of `as`, with strides as rows_like gives them.
Tensor placed(const Tensor& x, const Tensor& as) {
  Tensor typed = x.to(as.dtype());
  const Dims strides = row_strides(typed.sizes(), as);
  if (typed.strides() == as_list(strides)) return typed;
  Tensor result = Tensor::adopt(
      new_tensor_strided(typed.sizes(), as_list(strides), typed.dtype(), typed.device()));
  mytorch::copy_(result, typed);
  return result;
}

// ---- scores ----

int64_t group_size(const Arguments& a) {
  return a.key.size(1) == 0 ? 1 : a.heads() / a.key.size(1);
}

// Splits the heads of a tensor of query heads, (b, H, ...), into (b, K, G, ...); one head becomes
// (b, 1, 1, ...).
Tensor split_heads(const Tensor& x, const Arguments& a) {
  if (x.size(1) == 1) return x.unsqueeze(1);
  return x.unflatten(1, {a.key.size(1), group_size(a)});
}
// Undoes split_heads, for all heads.
Tensor join_heads(const Tensor& x) { return x.flatten(1, 2); }

// The operands in the compute type.
struct Operands {
  Tensor q, k, v;  // (B, K, G, L, D), (B, K, 1, S, D), (B, K, 1, S, V)

  explicit Operands(const Arguments& a)
      : q(widened(a.query).unflatten(1, {a.key.size(1), group_size(a)})),
        k(widened(a.key).unsqueeze(2)),
        v(widened(a.value).unsqueeze(2)) {}
};

// Returns (i + diagonal) - j for row i and column j, of shape (L, S).
Tensor distances(const Arguments& a) {
  const Device device = a.query.device();
  return mytorch::arange(a.diagonal, a.diagonal + a.rows(), kInt64, device).unsqueeze(1) -
         mytorch::arange(a.keys(), kInt64, device);
}

// The scores before and after everything that changes them.
struct Scores {
  Tensor slope;  // the derivative of softcap; undefined without it
  Tensor capped;
  Tensor masked;

  Scores(const Arguments& a, const Operands& x) {
    Tensor s = mytorch::matmul(x.q * a.scale, x.k.mT());
    if (a.softcap != 0) {
      const Tensor t = mytorch::tanh(s / a.softcap);
      slope = 1 - t * t;
      s = t * a.softcap;
    }
    capped = s;
    if (a.slopes.defined()) {
      const Tensor slopes = a.slopes.dim() == 1 ? a.slopes.unsqueeze(0) : a.slopes;
      const Tensor by_head = slopes.unflatten(1, {a.key.size(1), group_size(a)});
      s = s - by_head.unsqueeze(-1).unsqueeze(-1) * mytorch::abs(distances(a)).to(s.dtype());
    }
    if (a.attn_mask.defined()) {
      const Tensor mask = split_heads(a.attn_mask, a);
      s = mask.dtype() == kBool ? s.masked_fill(mask.logical_not(), -kInfinity) : s + widened(mask);
    }
    if (a.left >= 0 || a.right >= 0) {
      const Tensor distance = distances(a);
      if (a.left >= 0) s = s.masked_fill(distance > a.left, -kInfinity);
      if (a.right >= 0) s = s.masked_fill(distance < -a.right, -kInfinity);
    }
    masked = s;
  }
};

// Returns the softmax of scores whose logsumexp, (B, K, G, L), is known; 0 in rows without keys.
Tensor weights_of(const Tensor& scores, const Tensor& logsumexp) {
  const Tensor sums = logsumexp.unsqueeze(-1);
  return mytorch::exp(scores - sums.masked_fill(sums == -kInfinity, kInfinity));
}

// ---- dropout ----

double kept_scale(double p) { return p == 1 ? 0 : 1 / (1 - p); }

// Returns the seed and the number of the call that the generator counted last, on the device.
Tensor last_draw(const std::optional<Generator>& generator, Device device) {
  if (find_capture(device) != nullptr) {
    refuse(ErrorCode::kUnsupported, "attention_forward",
           "no kernel of this device takes this call with dropout, so that a graph cannot draw "
           "anew when it is replayed: set dropout_p to 0");
  }
  const Generator& used = generator.has_value() ? *generator : default_generator();
  Tensor draw = mytorch::empty({2}, kInt64, kCPU);
  draw.data<int64_t>()[0] = static_cast<int64_t>(used.seed());
  draw.data<int64_t>()[1] = static_cast<int64_t>(used.call() - 1);
  return draw.to(device);
}

// Returns the factors of dropout, 0 or 1 / (1 - p), of shape (B, K, G, L, S): the Philox blocks of
// mytorch/backend/philox.h, by operators on int64, so that the host does not read `draw`.
Tensor dropout_factors(const Arguments& a, const Tensor& draw, ScalarType type) {
  constexpr int64_t kLow = 0xFFFFFFFF;
  const Device device = draw.device();
  const int64_t rows = a.batch() * a.heads() * a.rows(), blocks = (a.keys() + 3) / 4;
  const auto high = [](const Tensor& x) { return (x >> 32) & kLow; };
  const Tensor seed = draw.select(0, 0), call = draw.select(0, 1);
  const Tensor number = mytorch::arange(rows * blocks, kInt64, device);
  Tensor c0 = number & kLow, c1 = (number >> 32) & 0xFFFF, c2 = call & kLow, c3 = high(call);
  Tensor key0 = seed & kLow, key1 = high(seed);
  for (int round = 0; round < 10; ++round) {
    const Tensor x = c0 * int64_t{0xD2511F53}, y = c2 * int64_t{0xCD9E8D57};
    c0 = high(y) ^ c1 ^ key0;
    c1 = y & kLow;
    c2 = high(x) ^ c3 ^ key1;
    c3 = x & kLow;
    key0 = (key0 + int64_t{0x9E3779B9}) & kLow;
    key1 = (key1 + int64_t{0xBB67AE85}) & kLow;
  }
  const Tensor bits =
      mytorch::stack({c0, c1.expand(c0.sizes()), c2.expand(c0.sizes()), c3.expand(c0.sizes())}, -1);
  const Tensor drawn = bits.reshape({rows, 4 * blocks}).narrow(1, 0, a.keys()) >> 8;
  const auto limit = static_cast<int64_t>(
      std::ceil(static_cast<double>(static_cast<float>(1 - a.dropout_p)) * (int64_t{1} << 24)));
  const Tensor kept =
      (drawn < limit).reshape({a.batch(), a.key.size(1), group_size(a), a.rows(), a.keys()});
  return kept.to(type) * kept_scale(a.dropout_p);
}

// ---- gradients ----

// The intermediate values of the gradient, each (B, K, G, L, S) unless it says otherwise.
struct Backward {
  Operands x;
  Scores scores;
  Tensor p;        // the weights before dropout
  Tensor factors;  // of dropout; undefined without it
  Tensor d_out;    // (B, K, G, L, V)
  Tensor inner;    // the gradient of p, less what the sum of the row subtracts
  Tensor d_masked, d_product;

  Backward(const Arguments& a, const Tensor& grad_output, const Tensor& grad_logsumexp,
           const Tensor& output, const Tensor& logsumexp, const Tensor& draw)
      : x(a), scores(a, x) {
    const auto split = [&](const Tensor& t) {
      return widened(t).unflatten(1, {a.key.size(1), group_size(a)});
    };
    p = weights_of(scores.masked, split(logsumexp));
    if (a.dropout_p != 0) factors = dropout_factors(a, draw, p.dtype());
    d_out = split(grad_output);
    Tensor delta = (d_out * split(output)).sum(-1, true);
    if (grad_logsumexp.defined()) delta = delta - split(grad_logsumexp).unsqueeze(-1);
    inner = dropped(mytorch::matmul(d_out, x.v.mT())) - delta;
    d_masked = p * inner;
    // A row that sees nothing has no gradient, even if infinities were masked there.
    d_product = through_cap(d_masked);
  }

  Tensor dropped(const Tensor& t) const { return factors.defined() ? t * factors : t; }
  Tensor through_cap(const Tensor& t) const {
    return scores.slope.defined() ? t * scores.slope : t;
  }
};

// Sums over the query heads that share a key head.
Tensor over_group(const Tensor& x) { return x.sum(2); }

// Returns the gradient of the mask from that of the masked scores.
Tensor mask_gradient(const Tensor& d_masked, const Tensor& attn_mask) {
  return grads::sum_to(join_heads(d_masked), attn_mask.sizes());
}

// ---- packed sequences ----

// Without dropout, the default generator does not count the call.
const Generator& uncounted() {
  static const Generator* const unused = new Generator(0);
  return *unused;
}

void check_index_type(const Tensor& x, const char* name, const char* op) {
  check_type(x.dtype() == kInt64 || x.dtype() == kInt32, op, name, " is ", x.dtype(),
             ": it must be int64 or int32");
}

// The arguments that attention_varlen_forward and attention_varlen_backward share.
struct Packed {
  const Tensor& query;
  const Tensor& key;
  const Tensor& value;
  const Tensor& cu_seqlens_q;
  const Tensor& cu_seqlens_k;
  int64_t max_q;
  int64_t max_k;
  const Tensor& slopes;
  int64_t left;
  int64_t right;
  bool bottom_right;
  double softcap;
  double scale;

  Dims output_sizes() const { return {query.size(0), query.size(1), value.size(2)}; }
  Dims row_sizes() const { return {query.size(1), query.size(0)}; }
  int64_t batch() const { return cu_seqlens_q.numel() - 1; }
};

void check_packed(const Packed& a, const char* op) {
  check_index_type(a.cu_seqlens_q, "cu_seqlens_q", op);
  check_index_type(a.cu_seqlens_k, "cu_seqlens_k", op);
  check_shape(a.query.dim() == 3 && a.key.dim() == 3 && a.value.dim() == 3, op, "query ",
              a.query.sizes(), ", key ", a.key.sizes(), " and value ", a.value.sizes(),
              " are not (T, H, D), (U, K, D) and (U, K, V)");
  check_shape(a.cu_seqlens_q.dim() == 1 && a.cu_seqlens_q.numel() >= 1 &&
                  a.cu_seqlens_k.sizes() == a.cu_seqlens_q.sizes(),
              op, "cu_seqlens_q ", a.cu_seqlens_q.sizes(), " and cu_seqlens_k ",
              a.cu_seqlens_k.sizes(), " are not 1-dim with one element more than sequences");
  const bool by_sequence = a.slopes.defined() && a.slopes.dim() == 2;
  if (by_sequence && a.slopes.size(0) != a.batch()) {
    refuse(ErrorCode::kShape, op, "slopes have shape ", a.slopes.sizes(),
           ": give one per head, or a row for each of ", a.batch(), " sequences");
  }
  const auto one = [](const Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
  const Tensor slopes = a.slopes.defined() && a.slopes.dim() == 2 && a.batch() != 0
                            ? a.slopes.select(0, 0)
                            : a.slopes;
  check_arguments({one(a.query),
                   one(a.key),
                   one(a.value),
                   {},
                   slopes,
                   a.left,
                   a.right,
                   0,
                   a.softcap,
                   a.scale,
                   0},
                  op);
}

// Returns the offsets of sequences in `total` packed rows.
std::vector<int64_t> offsets_of(const Tensor& cu_seqlens, int64_t total, int64_t most,
                                const char* name, const char* op) {
  const Tensor host = cu_seqlens.to(kCPU).to(kInt64).contiguous();
  const int64_t* data = host.data<int64_t>();
  std::vector<int64_t> offsets(data, data + host.numel());
  check_value(offsets.front() == 0 && offsets.back() == total, op, name, " runs from ",
              offsets.front(), " to ", offsets.back(), ": it must run from 0 to the ", total,
              " packed rows");
  for (size_t b = 0; b + 1 < offsets.size(); ++b) {
    const int64_t length = offsets[b + 1] - offsets[b];
    check_value(offsets[b + 1] >= offsets[b] && length <= most, op, name, " gives sequence ",
                static_cast<int64_t>(b), " ", length, " rows: lengths are from 0 to ", most);
  }
  return offsets;
}

// Calls body(b, q, n, k, m, slopes, diagonal) for each sequence that has rows: n of them from q on,
// and m keys from k on.
template <class F>
void for_each_sequence(const Packed& a, const char* op, F&& body) {
  const auto q = offsets_of(a.cu_seqlens_q, a.query.size(0), a.max_q, "cu_seqlens_q", op);
  const auto k = offsets_of(a.cu_seqlens_k, a.key.size(0), a.max_k, "cu_seqlens_k", op);
  for (int64_t b = 0; b < a.batch(); ++b) {
    const int64_t n = q[b + 1] - q[b], m = k[b + 1] - k[b];
    if (n == 0) continue;
    const bool by_sequence = a.slopes.defined() && a.slopes.dim() == 2;
    body(q[b], n, k[b], m, by_sequence ? a.slopes.select(0, b) : a.slopes,
         a.bottom_right ? m - n : 0);
  }
}

// Returns n packed rows as (1, heads, n, width), and undoes that.
Tensor sequence(const Tensor& x, int64_t first, int64_t n) {
  return x.narrow(0, first, n).transpose(0, 1).unsqueeze(0);
}
Tensor packed_rows(const Tensor& x) { return x.squeeze(0).transpose(0, 1); }

// ---- keys in pages ----

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

Specs<4> attention_backward(const Tensor& grad_output, const Tensor& grad_logsumexp,
                            const Tensor& query, const Tensor& key, const Tensor& value,
                            const Tensor& attn_mask, const Tensor& slopes, const Tensor& output,
                            const Tensor& logsumexp, const Tensor& draw, int64_t left,
                            int64_t right, int64_t diagonal, double softcap, double scale,
                            double dropout_p, IntList output_mask) {
  const char* op = "attention_backward";
  const Arguments a{query, key,      value,   attn_mask, slopes,   left,
                    right, diagonal, softcap, scale,     dropout_p};
  check_arguments(a, op);
  const ScalarType wide = wide_type(query.dtype());
  const auto check_like_result = [&](const Tensor& x, const char* name, const Dims& sizes,
                                     ScalarType type) {
    check_shape(x.sizes() == as_list(sizes), op, name, " has shape ", x.sizes(), ", expected ",
                as_list(sizes));
    check_type(x.dtype() == type, op, name, " is ", x.dtype(), ", expected ", type);
  };
  check_like_result(grad_output, "grad_output", a.output_sizes(), query.dtype());
  check_like_result(output, "output", a.output_sizes(), query.dtype());
  check_like_result(logsumexp, "logsumexp", a.row_sizes(), wide);
  if (grad_logsumexp.defined()) {
    check_like_result(grad_logsumexp, "grad_logsumexp", a.row_sizes(), wide);
  }
  check_like_result(draw, "draw", {dropout_p != 0 ? 2 : 0}, kInt64);
  check_shape(output_mask.size() == 4, op, "output_mask has ",
              static_cast<int64_t>(output_mask.size()), " elements, expected 4");
  const auto spec = [&](bool wanted, const Tensor& of) {
    return wanted ? rows_like(of, to_dims(of.sizes())) : like(query, {0});
  };
  const bool wants_mask = output_mask[3] != 0 && a.has_float_mask();
  return {spec(output_mask[0] != 0, query), spec(output_mask[1] != 0, key),
          spec(output_mask[2] != 0, value), wants_mask ? like(attn_mask) : like(query, {0})};
}

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

Specs<2> attention_varlen_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                                  int64_t max_q, int64_t max_k, const Tensor& slopes, int64_t left,
                                  int64_t right, bool bottom_right, double softcap, double scale) {
  const Packed a{query,  key,  value, cu_seqlens_q, cu_seqlens_k, max_q, max_k,
                 slopes, left, right, bottom_right, softcap,      scale};
  check_packed(a, "attention_varlen_forward");
  return {like(query, a.output_sizes()), like(query, a.row_sizes(), wide_type(query.dtype()))};
}

Specs<3> attention_varlen_backward(const Tensor& grad_output, const Tensor& grad_logsumexp,
                                   const Tensor& query, const Tensor& key, const Tensor& value,
                                   const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                                   int64_t max_q, int64_t max_k, const Tensor& slopes,
                                   const Tensor& output, const Tensor& logsumexp, int64_t left,
                                   int64_t right, bool bottom_right, double softcap, double scale,
                                   IntList output_mask) {
  const char* op = "attention_varlen_backward";
  const Packed a{query,  key,  value, cu_seqlens_q, cu_seqlens_k, max_q, max_k,
                 slopes, left, right, bottom_right, softcap,      scale};
  check_packed(a, op);
  const auto check_result = [&](const Tensor& x, const char* name, const Dims& sizes,
                                ScalarType type) {
    if (!x.defined()) return;
    check_shape(x.sizes() == as_list(sizes), op, name, " has shape ", x.sizes(), ", expected ",
                as_list(sizes));
    check_type(x.dtype() == type, op, name, " is ", x.dtype(), ", expected ", type);
  };
  const ScalarType wide = wide_type(query.dtype());
  check_result(grad_output, "grad_output", a.output_sizes(), query.dtype());
  check_result(output, "output", a.output_sizes(), query.dtype());
  check_result(logsumexp, "logsumexp", a.row_sizes(), wide);
  check_result(grad_logsumexp, "grad_logsumexp", a.row_sizes(), wide);
  check_shape(output_mask.size() == 3, op, "output_mask has ",
              static_cast<int64_t>(output_mask.size()), " elements, expected 3");
  const auto spec = [&](bool wanted, const Tensor& of) {
    return wanted ? like(of, to_dims(of.sizes())) : like(query, {0});
  };
  return {spec(output_mask[0] != 0, query), spec(output_mask[1] != 0, key),
          spec(output_mask[2] != 0, value)};
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

Tensors<4> attention_backward(const Tensor& grad_output, const Tensor& grad_logsumexp,
                              const Tensor& query, const Tensor& key, const Tensor& value,
                              const Tensor& attn_mask, const Tensor& slopes, const Tensor& output,
                              const Tensor& logsumexp, const Tensor& draw, int64_t left,
                              int64_t right, int64_t diagonal, double softcap, double scale,
                              double dropout_p, IntList mask) {
  const Arguments a{query, key,      value,   attn_mask, slopes,   left,
                    right, diagonal, softcap, scale,     dropout_p};
  const Backward b(a, grad_output, grad_logsumexp, output, logsumexp, draw);
  const auto none = [&] { return mytorch::empty({0}, query.dtype(), query.device()); };
  Tensors<4> result{none(), none(), none(), none()};
  const auto& [q, k, v] = b.x;
  const Tensor d_product = b.d_product * scale;
  if (mask[0] != 0) std::get<0>(result) = placed(join_heads(mytorch::matmul(d_product, k)), query);
  if (mask[1] != 0) {
    std::get<1>(result) = placed(over_group(mytorch::matmul(d_product.mT(), q)), key);
  }
  if (mask[2] != 0) {
    std::get<2>(result) = placed(over_group(mytorch::matmul(b.dropped(b.p).mT(), b.d_out)), value);
  }
  if (mask[3] != 0 && a.has_float_mask()) {
    std::get<3>(result) = mask_gradient(b.d_masked, attn_mask).to(attn_mask.dtype()).contiguous();
  }
  return result;
}

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

Tensors<2> attention_varlen_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                                    int64_t max_q, int64_t max_k, const Tensor& slopes,
                                    int64_t left, int64_t right, bool bottom_right, double softcap,
                                    double scale) {
  const Packed a{query,  key,  value, cu_seqlens_q, cu_seqlens_k, max_q, max_k,
                 slopes, left, right, bottom_right, softcap,      scale};
  const Dims sizes = a.output_sizes(), rows = a.row_sizes();
  const Tensor output = mytorch::empty(as_list(sizes), query.dtype(), query.device());
  const Tensor logsumexp = mytorch::empty(as_list(rows), wide_type(query.dtype()), query.device());
  for_each_sequence(
      a, "attention_varlen_forward",
      [&](int64_t q, int64_t n, int64_t k, int64_t m, const Tensor& by_head, int64_t diagonal) {
        const auto [out, sums, draw] = mytorch::attention_forward(
            sequence(query, q, n), sequence(key, k, m), sequence(value, k, m), {}, by_head, left,
            right, diagonal, softcap, scale, 0, uncounted());
        output.narrow(0, q, n).copy_(packed_rows(out));
        logsumexp.narrow(1, q, n).copy_(sums.squeeze(0));
      });
  return {output, logsumexp};
}

Tensors<3> attention_varlen_backward(const Tensor& grad_output, const Tensor& grad_logsumexp,
                                     const Tensor& query, const Tensor& key, const Tensor& value,
                                     const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                                     int64_t max_q, int64_t max_k, const Tensor& slopes,
                                     const Tensor& output, const Tensor& logsumexp, int64_t left,
                                     int64_t right, bool bottom_right, double softcap, double scale,
                                     IntList mask) {
  const Packed a{query,  key,  value, cu_seqlens_q, cu_seqlens_k, max_q, max_k,
                 slopes, left, right, bottom_right, softcap,      scale};
  const auto result = [&](bool wanted, const Tensor& x) {
    // Keys of a sequence without queries have no gradient.
    return wanted ? mytorch::zeros(x.sizes(), x.dtype(), x.device())
                  : mytorch::empty({0}, query.dtype(), query.device());
  };
  Tensors<3> results{result(mask[0] != 0, query), result(mask[1] != 0, key),
                     result(mask[2] != 0, value)};
  const Tensor draw = mytorch::empty({0}, kInt64, query.device());
  for_each_sequence(
      a, "attention_varlen_backward",
      [&](int64_t q, int64_t n, int64_t k, int64_t m, const Tensor& by_head, int64_t diagonal) {
        const auto rows = [&](const Tensor& x) {
          return x.defined() ? x.narrow(1, q, n).unsqueeze(0) : x;
        };
        const auto [to_query, to_key, to_value, to_mask] = mytorch::attention_backward(
            sequence(grad_output, q, n), rows(grad_logsumexp), sequence(query, q, n),
            sequence(key, k, m), sequence(value, k, m), {}, by_head, sequence(output, q, n),
            rows(logsumexp), draw, left, right, diagonal, softcap, scale, 0,
            {mask[0], mask[1], mask[2], 0});
        if (mask[0] != 0) std::get<0>(results).narrow(0, q, n).copy_(packed_rows(to_query));
        if (mask[1] != 0) std::get<1>(results).narrow(0, k, m).copy_(packed_rows(to_key));
        if (mask[2] != 0) std::get<2>(results).narrow(0, k, m).copy_(packed_rows(to_value));
      });
  return results;
}

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

namespace {

// Whether queries, keys and values lie side by side in the rows of one tensor (B, L, 3, H, D), as a
// linear layer that computes all three leaves them.
bool is_packed(const Tensor& query, const Tensor& key, const Tensor& value) {
  const int64_t row = 3 * query.size(1) * query.size(3);
  const Dims strides{query.size(2) * row, query.size(3), row, 1};
  const Tensor* all[] = {&query, &key, &value};
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor& x = *all[i];
    if (x.impl()->storage != query.impl()->storage || x.dtype() != query.dtype() ||
        x.sizes() != query.sizes() || x.strides() != as_list(strides) ||
        x.storage_offset() != query.storage_offset() + i * row / 3) {
      return false;
    }
  }
  return query.numel() != 0;
}

}  // namespace

namespace grads {

Tensors<4> attention_gradient(const Tensor* grads, const Tensor& query, const Tensor& key,
                              const Tensor& value, const Tensor& attn_mask, const Tensor& slopes,
                              const Tensor& output, const Tensor& logsumexp, const Tensor& draw,
                              int64_t left, int64_t right, int64_t diagonal, double softcap,
                              double scale, double dropout_p, const bool* wanted) {
  const Tensor grad_output = grads[0].defined()
                                 ? grads[0]
                                 : mytorch::zeros(output.sizes(), output.dtype(), output.device());
  const bool wants_mask = wanted[3] && attn_mask.defined() && attn_mask.dtype() != kBool;
  if (wanted[0] && wanted[1] && wanted[2] && !wants_mask && !grad_enabled() &&
      is_packed(query, key, value)) {
    // The gradients are packed, too, so that joining them copies nothing.
    const Tensor packed =
        mytorch::empty({query.size(0), query.size(2), 3, query.size(1), query.size(3)},
                       query.dtype(), query.device());
    const auto part = [&](int64_t i) { return packed.select(2, i).transpose(1, 2); };
    Tensors<4> result{part(0), part(1), part(2), {}};
    mytorch::attention_backward_out(std::get<0>(result), std::get<1>(result), std::get<2>(result),
                                    mytorch::empty({0}, query.dtype(), query.device()), grad_output,
                                    grads[1], query, key, value, attn_mask, slopes, output,
                                    logsumexp, draw.detach(), left, right, diagonal, softcap, scale,
                                    dropout_p, {1, 1, 1, 0});
    return result;
  }
  Tensors<4> result = mytorch::attention_backward(
      grad_output, grads[1], query, key, value, attn_mask, slopes, output, logsumexp, draw.detach(),
      left, right, diagonal, softcap, scale, dropout_p,
      {int64_t{wanted[0]}, int64_t{wanted[1]}, int64_t{wanted[2]}, int64_t{wants_mask}});
  if (!wanted[0]) std::get<0>(result) = Tensor();
  if (!wanted[1]) std::get<1>(result) = Tensor();
  if (!wanted[2]) std::get<2>(result) = Tensor();
  if (!wants_mask) std::get<3>(result) = Tensor();
  return result;
}

Tensors<3> attention_varlen_gradient(const Tensor* grads, const Tensor& query, const Tensor& key,
                                     const Tensor& value, const Tensor& cu_seqlens_q,
                                     const Tensor& cu_seqlens_k, int64_t max_q, int64_t max_k,
                                     const Tensor& slopes, const Tensor& output,
                                     const Tensor& logsumexp, int64_t left, int64_t right,
                                     bool bottom_right, double softcap, double scale,
                                     const bool* wanted) {
  const Tensor grad_output = grads[0].defined()
                                 ? grads[0]
                                 : mytorch::zeros(output.sizes(), output.dtype(), output.device());
  Tensors<3> result = mytorch::attention_varlen_backward(
      grad_output, grads[1], query, key, value, cu_seqlens_q, cu_seqlens_k, max_q, max_k, slopes,
      output, logsumexp, left, right, bottom_right, softcap, scale,
      {int64_t{wanted[0]}, int64_t{wanted[1]}, int64_t{wanted[2]}});
  if (!wanted[0]) std::get<0>(result) = Tensor();
  if (!wanted[1]) std::get<1>(result) = Tensor();
  if (!wanted[2]) std::get<2>(result) = Tensor();
  return result;
}

Tensors<8> attention_double_backward(const Tensor* grads, const Tensor& grad_output,
                                     const Tensor& grad_logsumexp, const Tensor& query,
                                     const Tensor& key, const Tensor& value,
                                     const Tensor& attn_mask, const Tensor& slopes,
                                     const Tensor& output, const Tensor& logsumexp,
                                     const Tensor& draw, int64_t left, int64_t right,
                                     int64_t diagonal, double softcap, double scale,
                                     double dropout_p, IntList mask) {
  const Arguments a{query, key,      value,   attn_mask, slopes,   left,
                    right, diagonal, softcap, scale,     dropout_p};
  const Backward b(a, grad_output, grad_logsumexp, output, logsumexp, draw);
  const auto& [q, k, v] = b.x;
  const auto split = [&](const Tensor& t) {
    return widened(t).unflatten(1, {a.key.size(1), group_size(a)});
  };
  const auto given = [&](int i) { return mask[i] != 0 && grads[i].defined(); };
  const auto add = [](Tensor& sum, const Tensor& term) { sum = sum.defined() ? sum + term : term; };
  const Tensor zero = mytorch::zeros(b.p.sizes(), b.p.dtype(), b.p.device());
  Tensor to_q, to_k, to_v, to_out;  // gradients of the operands, with split heads
  Tensor to_product = zero, to_masked = zero, to_p = zero;

  // grad_query = d_product @ k * scale and grad_key = d_product.mT @ q * scale
  if (given(0)) {
    const Tensor g = split(grads[0]) * scale;
    to_product = to_product + mytorch::matmul(g, k.mT());
    add(to_k, mytorch::matmul(b.d_product.mT(), g));
  }
  if (given(1)) {
    const Tensor g = widened(grads[1]).unsqueeze(2) * scale;
    to_product = to_product + mytorch::matmul(q, g.mT());
    add(to_q, mytorch::matmul(b.d_product, g));
  }
  // grad_value = dropped(p).mT @ d_out
  if (given(2)) {
    const Tensor g = widened(grads[2]).unsqueeze(2);
    to_p = to_p + b.dropped(mytorch::matmul(b.d_out, g.mT()));
    add(to_out, mytorch::matmul(b.dropped(b.p), g));
  }
  if (given(3) && a.has_float_mask()) to_masked = to_masked + split_heads(widened(grads[3]), a);

  // d_masked = p * inner; d_product = d_masked * slope
  to_masked = to_masked + b.through_cap(to_product);
  to_p = to_p + to_masked * b.inner;
  const Tensor to_inner = b.p * to_masked;
  const Tensor of_rows = to_inner.sum(-1, true);
  add(to_out, mytorch::matmul(b.dropped(to_inner), v) - of_rows * split(output));
  add(to_v, mytorch::matmul(b.dropped(to_inner).mT(), b.d_out));
  const Tensor to_output = -(of_rows * b.d_out);

  // p = exp(masked - logsumexp)
  const Tensor to_scores = b.p * to_p;
  Tensor to_raw = b.through_cap(to_scores);
  if (softcap != 0) {  // the derivative of slope is -2 * capped / softcap^2 * slope
    to_raw = to_raw +
             b.through_cap(to_product * b.d_masked * b.scores.capped) * (-2 / (softcap * softcap));
  }
  to_raw = to_raw * scale;
  add(to_q, mytorch::matmul(to_raw, k));
  add(to_k, mytorch::matmul(to_raw.mT(), q));

  const ScalarType type = query.dtype();
  const auto joined = [&](const Tensor& t) { return join_heads(t).to(type); };
  const Tensor to_grad_logsumexp =
      grad_logsumexp.defined() ? join_heads(of_rows.squeeze(-1)) : Tensor();
  const Tensor to_mask =
      a.has_float_mask() ? mask_gradient(to_scores, attn_mask).to(attn_mask.dtype()) : Tensor();
  return {joined(to_out),
          to_grad_logsumexp,
          joined(to_q),
          over_group(to_k).to(type),
          over_group(to_v).to(type),
          to_mask,
          joined(to_output),
          -join_heads(to_scores.sum(-1))};
}

}  // namespace grads
}  // namespace mytorch
