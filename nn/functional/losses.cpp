// Losses and distances that are compositions of operators.
#include <cmath>
#include <numbers>
#include <vector>

#include "mytorch/nn/functional.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/clamp_min.h"
#include "mytorch/ops/cumsum.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/le.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/log_sigmoid.h"
#include "mytorch/ops/minimum.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ne.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/rsqrt.h"
#include "mytorch/ops/scatter_add.h"
#include "mytorch/ops/softplus.h"
#include "mytorch/ops/square.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "nn/functional/named.h"
#include "nn/functional/options.h"

namespace mytorch::nn::functional {
namespace {

Tensor reduced(const Tensor& terms, Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone:
      return terms;
    case Reduction::kSum:
      return terms.sum();
    case Reduction::kMean:
      break;
  }
  return terms.mean();
}

// Refuses a target whose shape is not that of the input.
void check_target(const char* op, const Tensor& input, const Tensor& target) {
  if (!(input.sizes() == target.sizes())) {
    fail(ErrorCode::kShape, "[", op, "] target has shape ", shape_str(target.sizes()),
         ", but input has shape ", shape_str(input.sizes()));
  }
}

// Refuses anything but scores (N, C) or (C).
void check_scores(const char* op, const Tensor& input) {
  if ((input.dim() != 1 && input.dim() != 2) || input.size(-1) == 0) {
    fail(ErrorCode::kShape, "[", op, "] input ", shape_str(input.sizes()),
         " is neither (N, C) nor (C)");
  }
}

}  // namespace

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, const PairwiseDistanceArgs& options) {
  return named("pairwise_distance", [&] {
    return linalg_vector_norm(add(sub(x1, x2), options.eps), options.p, -1, options.keepdim);
  });
}

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, const CosineSimilarityArgs& options) {
  return named("cosine_similarity", [&] {
    const auto normal = [&](const Tensor& x) {
      return div(x, clamp_min(linalg_vector_norm(x, 2, options.dim, true), options.eps));
    };
    return mul(normal(x1), normal(x2)).sum(options.dim);
  });
}

Tensor normalize(const Tensor& input, const NormalizeArgs& options) {
  return named("normalize", [&] {
    return div(input,
               clamp_min(linalg_vector_norm(input, options.p, options.dim, true), options.eps));
  });
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNLLArgs& options) {
  return named("poisson_nll_loss", [&] {
    Tensor terms = options.log_input ? sub(exp(input), mul(target, input))
                                     : sub(input, mul(target, log(add(input, options.eps))));
    if (options.full) {
      const Tensor stirling = add(sub(mul(target, log(target)), target),
                                  mul(log(mul(target, 2 * std::numbers::pi)), 0.5));
      terms = add(terms, where(le(target, 1), zeros_like(stirling), stirling));
    }
    return reduced(terms, options.reduction);
  });
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                         const GaussianNLLArgs& options) {
  const char* op = "gaussian_nll_loss";
  return named(op, [&] {
    const Tensor rows = var.dim() == input.dim() - 1 ? var.unsqueeze(-1) : var;
    if (rows.dim() != input.dim()) {
      fail(ErrorCode::kShape, "[", op, "] var ", shape_str(var.sizes()), " fits neither input ",
           shape_str(input.sizes()), " nor its rows");
    }
    // As in PyTorch, the gradient ignores the bound.
    const Tensor variance = add(rows, sub(clamp_min(rows, options.eps), rows).detach());
    Tensor terms = mul(add(log(variance), div(square(sub(input, target)), variance)), 0.5);
    if (options.full) terms = add(terms, 0.5 * std::log(2 * std::numbers::pi));
    return reduced(terms, options.reduction);
  });
}

Tensor soft_margin_loss(const Tensor& input, const Tensor& target, const SoftMarginArgs& options) {
  check_target("soft_margin_loss", input, target);
  return reduced(softplus(neg(mul(target, input))), options.reduction);
}

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target,
                            const HingeEmbeddingArgs& options) {
  return named("hinge_embedding_loss", [&] {
    const Tensor zero = zeros_like(input);
    const Tensor far = where(ne(target, 1), relu(add(neg(input), options.margin)), zero);
    return reduced(add(far, where(ne(target, -1), input, zero)), options.reduction);
  });
}

Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                           const MarginRankingArgs& options) {
  return named("margin_ranking_loss", [&] {
    return reduced(relu(add(mul(neg(target), sub(input1, input2)), options.margin)),
                   options.reduction);
  });
}

Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                             const CosineEmbeddingArgs& options) {
  const char* op = "cosine_embedding_loss";
  if (target.dim() > 1 || input1.dim() != target.dim() + 1) {
    fail(ErrorCode::kShape, "[", op, "] inputs of shape ", shape_str(input1.sizes()),
         " do not fit target ", shape_str(target.sizes()), ": give (N, D) and (N), or (D) and ()");
  }
  return named(op, [&] {
    constexpr double kEpsilon = 1e-12;
    const Tensor square1 = add(square(input1).sum(-1), kEpsilon);
    const Tensor square2 = add(square(input2).sum(-1), kEpsilon);
    const Tensor cosine = mul(mul(input1, input2).sum(-1), rsqrt(mul(square1, square2)));
    const Tensor zero = zeros_like(cosine);
    const Tensor near = where(eq(target, 1), add(neg(cosine), 1), zero);
    const Tensor far = where(eq(target, -1), relu(sub(cosine, options.margin)), zero);
    return reduced(add(near, far), options.reduction);
  });
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginArgs& options) {
  return named("triplet_margin_loss", [&] {
    const auto distance = [&](const Tensor& a, const Tensor& b) {
      return pairwise_distance(a, b, {.p = options.p, .eps = options.eps});
    };
    Tensor far = distance(anchor, negative);
    if (options.swap) far = minimum(far, distance(positive, negative));
    return reduced(relu(add(sub(distance(anchor, positive), far), options.margin)),
                   options.reduction);
  });
}

Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                   const MultiLabelSoftMarginArgs& options) {
  const char* op = "multilabel_soft_margin_loss";
  check_target(op, input, target);
  return named(op, [&] {
    Tensor terms = neg(
        add(mul(target, log_sigmoid(input)), mul(add(neg(target), 1), log_sigmoid(neg(input)))));
    if (options.weight.defined()) terms = mul(terms, options.weight);
    return reduced(terms.mean(-1), options.reduction);
  });
}

Tensor multi_margin_loss(const Tensor& input, const Tensor& target,
                         const MultiMarginArgs& options) {
  const char* op = "multi_margin_loss";
  check_scores(op, input);
  if (target.dim() != input.dim() - 1) {
    fail(ErrorCode::kShape, "[", op, "] target ", shape_str(target.sizes()),
         " does not have one class for each row of input ", shape_str(input.sizes()));
  }
  if (options.p != 1 && options.p != 2) {
    fail(ErrorCode::kValue, "[", op, "] p is ", options.p, ": give 1 or 2");
  }
  return named(op, [&] {
    const Tensor index = target.unsqueeze(-1);
    Tensor hinge = relu(add(sub(input, gather(input, -1, index)), options.margin));
    if (options.p == 2) hinge = square(hinge);
    if (options.weight.defined()) {
      hinge = mul(hinge, options.weight.index_select(0, index.flatten()).reshape(index.sizes()));
    }
    const Tensor classes = arange(input.size(-1), kInt64, input.device());
    const Tensor others = hinge.masked_fill(eq(classes, index), 0);
    return reduced(div(others.sum(-1), static_cast<double>(input.size(-1))), options.reduction);
  });
}

Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target,
                              const MultiLabelMarginArgs& options) {
  const char* op = "multilabel_margin_loss";
  check_scores(op, input);
  check_target(op, input, target);
  return named(op, [&] {
    // Labels count until the first -1 of their row.
    const Tensor labeled = eq(cumsum(eq(target, -1).to(kInt64), -1), 0);
    const Tensor labels = where(labeled, target, zeros_like(target));
    const Tensor is_label = ne(scatter_add(zeros_like(target), -1, labels, labeled.to(kInt64)), 0);
    const Tensor scores = gather(input, -1, labels);
    // One row for each label, one column for each class.
    const Tensor hinge = relu(add(sub(input.unsqueeze(-2), scores.unsqueeze(-1)), 1));
    const Tensor kept = hinge.masked_fill(is_label.unsqueeze(-2), 0)
                            .masked_fill(eq(labeled, false).unsqueeze(-1), 0);
    return reduced(div(kept.sum({-2, -1}), static_cast<double>(input.size(-1))), options.reduction);
  });
}

}  // namespace mytorch::nn::functional
