// Losses and distances by the options of functions and modules.
#include "mytorch/nn/functional.h"
#include "mytorch/ops/clamp.h"
#include "mytorch/ops/cosine_embedding_loss.h"
#include "mytorch/ops/cosine_similarity.h"
#include "mytorch/ops/ctc_loss.h"
#include "mytorch/ops/gaussian_nll_loss.h"
#include "mytorch/ops/hinge_embedding_loss.h"
#include "mytorch/ops/margin_ranking_loss.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/minimum.h"
#include "mytorch/ops/multi_margin_loss.h"
#include "mytorch/ops/multilabel_margin_loss.h"
#include "mytorch/ops/multilabel_soft_margin_loss.h"
#include "mytorch/ops/normalize.h"
#include "mytorch/ops/pairwise_distance.h"
#include "mytorch/ops/poisson_nll_loss.h"
#include "mytorch/ops/soft_margin_loss.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/triplet_margin_loss.h"
#include "nn/functional/options.h"

namespace mytorch::nn::functional {

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, const PairwiseDistanceArgs& options) {
  return mytorch::pairwise_distance(x1, x2, options.p, options.eps, options.keepdim);
}

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, const CosineSimilarityArgs& options) {
  return mytorch::cosine_similarity(x1, x2, options.dim, options.eps);
}

Tensor normalize(const Tensor& input, const NormalizeArgs& options) {
  return mytorch::normalize(input, options.p, options.dim, options.eps);
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNLLArgs& options) {
  return mytorch::poisson_nll_loss(input, target, options.log_input, options.full, options.eps,
                                   name_of(options.reduction));
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                         const GaussianNLLArgs& options) {
  return mytorch::gaussian_nll_loss(input, target, var, options.full, options.eps,
                                    name_of(options.reduction));
}

Tensor soft_margin_loss(const Tensor& input, const Tensor& target, const SoftMarginArgs& options) {
  return mytorch::soft_margin_loss(input, target, name_of(options.reduction));
}

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target,
                            const HingeEmbeddingArgs& options) {
  return mytorch::hinge_embedding_loss(input, target, options.margin, name_of(options.reduction));
}

Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                           const MarginRankingArgs& options) {
  return mytorch::margin_ranking_loss(input1, input2, target, options.margin,
                                      name_of(options.reduction));
}

Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                             const CosineEmbeddingArgs& options) {
  return mytorch::cosine_embedding_loss(input1, input2, target, options.margin,
                                        name_of(options.reduction));
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginArgs& options) {
  return mytorch::triplet_margin_loss(anchor, positive, negative, options.margin, options.p,
                                      options.eps, options.swap, name_of(options.reduction));
}

Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive,
                                         const Tensor& negative,
                                         const TripletMarginWithDistanceArgs& options) {
  const char* op = "triplet_margin_with_distance_loss";
  if (!(options.margin > 0)) {
    fail(ErrorCode::kValue, "[", op, "] margin is ", options.margin, ": give a positive number");
  }
  if (anchor.dim() != positive.dim() || anchor.dim() != negative.dim()) {
    fail(ErrorCode::kShape, "[", op, "] anchor, ", shape_str(anchor.sizes()), ", positive, ",
         shape_str(positive.sizes()), ", and negative, ", shape_str(negative.sizes()),
         ", have different numbers of dimensions");
  }
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return options.distance_function ? options.distance_function(a, b)
                                     : mytorch::pairwise_distance(a, b);
  };
  const Tensor near = distance(anchor, positive);
  Tensor far = distance(anchor, negative);
  if (options.swap) far = mytorch::minimum(far, distance(positive, negative));
  Tensor terms = mytorch::clamp(near - far + options.margin, 0);
  switch (options.reduction) {
    case Reduction::kMean:
      return mytorch::mean(terms);
    case Reduction::kSum:
      return mytorch::sum(terms);
    default:
      return terms;
  }
}

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CTCArgs& options) {
  return mytorch::ctc_loss(log_probs, targets, input_lengths, target_lengths, options.blank,
                           name_of(options.reduction), options.zero_infinity);
}

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets,
                const std::vector<int64_t>& input_lengths,
                const std::vector<int64_t>& target_lengths, const CTCArgs& options) {
  return mytorch::ctc_loss(log_probs, targets, IntList(input_lengths), IntList(target_lengths),
                           options.blank, name_of(options.reduction), options.zero_infinity);
}

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CTCLossFuncOptions& options) {
  return ctc_loss(log_probs, targets, input_lengths, target_lengths, options.args());
}

Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                   const MultiLabelSoftMarginArgs& options) {
  return mytorch::multilabel_soft_margin_loss(input, target, options.weight,
                                              name_of(options.reduction));
}

Tensor multi_margin_loss(const Tensor& input, const Tensor& target,
                         const MultiMarginArgs& options) {
  return mytorch::multi_margin_loss(input, target, options.p, options.margin, options.weight,
                                    name_of(options.reduction));
}

Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target,
                              const MultiLabelMarginArgs& options) {
  return mytorch::multilabel_margin_loss(input, target, name_of(options.reduction));
}

}  // namespace mytorch::nn::functional
