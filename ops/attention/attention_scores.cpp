// The scores of queries and keys, and the softmax of them.
#include "mytorch/ops/abs.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/tanh.h"
#include "ops/attention/attention.h"
#include "ops/precision.h"

namespace mytorch::attention {

int64_t group_size(const Arguments& a) {
  return a.key.size(1) == 0 ? 1 : a.heads() / a.key.size(1);
}

Tensor split_heads(const Tensor& x, const Arguments& a) {
  if (x.size(1) == 1) return x.unsqueeze(1);
  return x.unflatten(1, {a.key.size(1), group_size(a)});
}

Tensor join_heads(const Tensor& x) { return x.flatten(1, 2); }

Operands::Operands(const Arguments& a)
    : q(widened(a.query).unflatten(1, {a.key.size(1), group_size(a)})),
      k(widened(a.key).unsqueeze(2)),
      v(widened(a.value).unsqueeze(2)) {}

namespace {

// Returns (i + diagonal) - j for row i and column j, of shape (L, S).
Tensor distances(const Arguments& a) {
  const Device device = a.query.device();
  return mytorch::arange(a.diagonal, a.diagonal + a.rows(), kInt64, device).unsqueeze(1) -
         mytorch::arange(a.keys(), kInt64, device);
}

}  // namespace

Scores::Scores(const Arguments& a, const Operands& x) {
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

Tensor weights_of(const Tensor& scores, const Tensor& logsumexp) {
  const Tensor sums = logsumexp.unsqueeze(-1);
  return mytorch::exp(scores - sums.masked_fill(sums == -kInfinity, kInfinity));
}

}  // namespace mytorch::attention
