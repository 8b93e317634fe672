// Losses that consist of other operators.
#include <cmath>
#include <numbers>
#include <tuple>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/binary_cross_entropy_with_logits_terms.h"
#include "mytorch/ops/clamp_min.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/isfinite.h"
#include "mytorch/ops/le.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/lt.h"
#include "mytorch/ops/minimum.h"
#include "mytorch/ops/pad.h"
#include "mytorch/ops/pairwise_distance.h"
#include "mytorch/ops/rsqrt.h"
#include "mytorch/ops/scatter_add.h"
#include "mytorch/ops/searchsorted.h"
#include "mytorch/ops/sort.h"
#include "mytorch/ops/square.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/check.h"
#include "ops/check_values.h"
#include "ops/composites.h"

namespace mytorch::composite {
namespace {

void check_target(const Tensor& input, const Tensor& target, const char* op) {
  check_shape(input.sizes() == target.sizes(), op, "target has shape ", target.sizes(),
              ", but self has shape ", input.sizes());
}

// Refuses anything but scores (N, C) or (C).
void check_scores(const Tensor& input, const char* op) {
  check_shape((input.dim() == 1 || input.dim() == 2) && input.size(-1) != 0, op, "self has shape ",
              input.sizes(), ": give scores (N, C) or (C)");
}

Tensor hinge(const Tensor& x) { return mytorch::clamp_min(x, 0); }

}  // namespace

Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                             double margin, Str reduction) {
  const char* op = "cosine_embedding_loss";
  check_shape(target.dim() <= 1 && input1.dim() == target.dim() + 1 && input2.dim() == input1.dim(),
              op, "inputs of shapes ", input1.sizes(), " and ", input2.sizes(),
              " do not fit target ", target.sizes(), ": give (N, D) and (N), or (D) and ()");
  constexpr double kEpsilon = 1e-12;
  const Tensor square1 = mytorch::square(input1).sum(-1) + kEpsilon;
  const Tensor square2 = mytorch::square(input2).sum(-1) + kEpsilon;
  const Tensor cosine = (input1 * input2).sum(-1) * mytorch::rsqrt(square1 * square2);
  const Tensor near = mytorch::where(target == 1, 1 - cosine, 0);
  const Tensor far = mytorch::where(target == -1, hinge(cosine - margin), 0);
  return reduced(near + far, reduction, op);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           double margin, double p, double eps, bool swap, Str reduction) {
  const char* op = "triplet_margin_loss";
  check_shape(anchor.dim() == positive.dim() && anchor.dim() == negative.dim(), op, "anchor, ",
              anchor.sizes(), ", positive, ", positive.sizes(), ", and negative, ",
              negative.sizes(), ", have different numbers of dimensions");
  Tensor far = mytorch::pairwise_distance(anchor, negative, p, eps);
  if (swap) far = mytorch::minimum(far, mytorch::pairwise_distance(positive, negative, p, eps));
  const Tensor near = mytorch::pairwise_distance(anchor, positive, p, eps);
  return reduced(hinge(near - far + margin), reduction, op);
}

Tensor multilabel_soft_margin_loss(const Tensor& self, const Tensor& target, const Tensor& weight,
                                   Str reduction) {
  const char* op = "multilabel_soft_margin_loss";
  check_target(self, target, op);
  check_shape(self.dim() >= 1, op, "self is 0-dim: its last dimension is that of the classes");
  Tensor terms = mytorch::binary_cross_entropy_with_logits_terms(
      self, target.is_floating_point() ? target : target.to(self.dtype()), {}, {});
  if (weight.defined()) terms = terms * weight;
  return reduced(terms.mean(-1), reduction, op);
}

Tensor multi_margin_loss(const Tensor& self, const Tensor& target, const Scalar& p,
                         const Scalar& margin, const Tensor& weight, Str reduction) {
  const char* op = "multi_margin_loss";
  check_scores(self, op);
  check_shape(target.dim() == self.dim() - 1, op, "target ", target.sizes(),
              " does not have one class for each row of self ", self.sizes());
  const double order = p.to<double>();
  check_value(order == 1 || order == 2, op, "p is ", order, ": give 1 or 2");
  const int64_t classes = self.size(-1);
  const Tensor index = target.unsqueeze(-1);
  Tensor terms = hinge(self - self.gather(-1, index) + margin);
  if (order == 2) terms = mytorch::square(terms);
  if (weight.defined()) {
    terms = terms * weight.index_select(0, index.flatten()).reshape(index.sizes());
  }
  const Tensor own = mytorch::arange(classes, kInt64, self.device()) == index;
  return reduced(terms.masked_fill(own, 0).sum(-1) / static_cast<double>(classes), reduction, op);
}

Tensor multilabel_margin_loss(const Tensor& self, const Tensor& target, Str reduction) {
  const char* op = "multilabel_margin_loss";
  check_scores(self, op);
  check_target(self, target, op);
  // Labels count until the first -1 of their row.
  const Tensor labeled = (target == -1).to(kInt64).cumsum(-1) == 0;
  const Tensor labels = mytorch::where(labeled, target, 0);
  const Tensor is_label =
      mytorch::scatter_add(mytorch::zeros_like(target), -1, labels, labeled.to(kInt64)) != 0;
  // The terms of a label are those of the other classes above its bound: in order, the last ones,
  // whose sum is a difference of two. In float64, relative to a finite score of the row.
  const int64_t classes = self.size(-1);
  const Tensor wide = self.to(kFloat64), top = wide.detach().amax(-1, true);
  const Tensor x = wide - mytorch::where(mytorch::isfinite(top), top, 0);
  const Tensor bounds = x.gather(-1, labels) - 1;
  const Tensor others = std::get<0>(mytorch::sort(x.masked_fill(is_label, -HUGE_VAL), -1));
  const Tensor sums = mytorch::pad(others.flip({-1}).cumsum(-1).flip({-1}), {0, 1});
  const Tensor first = mytorch::searchsorted(others.detach().contiguous(),
                                             bounds.detach().contiguous(), false, true);
  const Tensor terms = sums.gather(-1, first) - (classes - first).to(kFloat64) * bounds;
  const Tensor kept = mytorch::where(mytorch::logical_and(labeled, first < classes), terms, 0);
  return reduced(kept.sum(-1) / static_cast<double>(classes), reduction, op).to(self.dtype());
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input, bool full,
                        double eps, Str reduction) {
  Tensor terms =
      log_input ? mytorch::exp(input) - target * input : input - target * mytorch::log(input + eps);
  if (full) {
    const Tensor small = target <= 1;
    // Where it does not count, of 1: at 0, it has an infinite derivative.
    const Tensor n = mytorch::where(small, 1, target);
    const Tensor stirling = n * mytorch::log(n) - n + 0.5 * mytorch::log(2 * std::numbers::pi * n);
    terms = terms + mytorch::where(small, 0, stirling);
  }
  return reduced(terms, reduction, "poisson_nll_loss");
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var, bool full,
                         double eps, Str reduction) {
  const char* op = "gaussian_nll_loss";
  const Tensor rows = var.dim() == input.dim() - 1 ? var.unsqueeze(-1) : var;
  check_shape(rows.dim() == input.dim(), op, "var ", var.sizes(), " fits neither input ",
              input.sizes(), " nor its rows");
  check_value(!may_check_values(var) || !mytorch::lt(var.detach(), 0).any().item<bool>(), op,
              "var has negative values: variances are at least 0");
  // As in PyTorch, the gradient ignores the bound.
  const Tensor variance = rows + (mytorch::clamp_min(rows, eps) - rows).detach();
  Tensor terms = 0.5 * (mytorch::log(variance) + mytorch::square(input - target) / variance);
  if (full) terms = terms + 0.5 * std::log(2 * std::numbers::pi);
  return reduced(terms, reduction, op);
}

}  // namespace mytorch::composite
