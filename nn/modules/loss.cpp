#include "mytorch/nn/loss.h"

#include "mytorch/nn/functional.h"
#include "nn/functional/options.h"

namespace mytorch::nn {
namespace {

constexpr const char* kReductions[] = {"none", "mean", "sum"};
constexpr const char* kKLReductions[] = {"none", "mean", "sum", "batchmean"};

}  // namespace

Reduction from_name(Str name, Reduction /*type*/) {
  return static_cast<Reduction>(index_of_name("reduction", name, kReductions));
}

const char* name_of(Reduction reduction) { return kReductions[static_cast<size_t>(reduction)]; }

KLReduction from_name(Str name, KLReduction /*type*/) {
  return static_cast<KLReduction>(index_of_name("reduction", name, kKLReductions));
}

const char* name_of(KLReduction reduction) { return kKLReductions[static_cast<size_t>(reduction)]; }

Tensor Loss::operator()(const Tensor& input, const Tensor& target) {
  try {
    if (!has_hooks()) return forward(input, target);
    const Tensor hooked = before_forward(input);
    return after_forward(hooked, forward(hooked, target));
  } catch (const Error&) {
    rethrow_with_path();
  }
}

// ---- forward ----

// Defines the forward of two tensors by the function of nn::functional.
#define MYTORCH_FORWARD(Loss, function)                    \
  Tensor Loss::forward(const Tensor& a, const Tensor& b) { \
    return functional::function(a, b, options.args());     \
  }
MYTORCH_FORWARD(MSELoss, mse_loss)
MYTORCH_FORWARD(L1Loss, l1_loss)
MYTORCH_FORWARD(SmoothL1Loss, smooth_l1_loss)
MYTORCH_FORWARD(HuberLoss, huber_loss)
MYTORCH_FORWARD(PoissonNLLLoss, poisson_nll_loss)
MYTORCH_FORWARD(CrossEntropyLoss, cross_entropy)
MYTORCH_FORWARD(NLLLoss, nll_loss)
MYTORCH_FORWARD(BCELoss, binary_cross_entropy)
MYTORCH_FORWARD(BCEWithLogitsLoss, binary_cross_entropy_with_logits)
MYTORCH_FORWARD(KLDivLoss, kl_div)
MYTORCH_FORWARD(MultiMarginLoss, multi_margin_loss)
MYTORCH_FORWARD(MultiLabelMarginLoss, multilabel_margin_loss)
MYTORCH_FORWARD(MultiLabelSoftMarginLoss, multilabel_soft_margin_loss)
MYTORCH_FORWARD(SoftMarginLoss, soft_margin_loss)
MYTORCH_FORWARD(HingeEmbeddingLoss, hinge_embedding_loss)
MYTORCH_FORWARD(PairwiseDistance, pairwise_distance)
MYTORCH_FORWARD(CosineSimilarity, cosine_similarity)
#undef MYTORCH_FORWARD

Tensor GaussianNLLLoss::forward(const Tensor& input, const Tensor& target, const Tensor& var) {
  return functional::gaussian_nll_loss(input, target, var, options.args());
}

Tensor MarginRankingLoss::forward(const Tensor& input1, const Tensor& input2,
                                  const Tensor& target) {
  return functional::margin_ranking_loss(input1, input2, target, options.args());
}

Tensor CosineEmbeddingLoss::forward(const Tensor& input1, const Tensor& input2,
                                    const Tensor& target) {
  return functional::cosine_embedding_loss(input1, input2, target, options.args());
}

Tensor CTCLoss::forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                        const Tensor& target_lengths) {
  return functional::ctc_loss(log_probs, targets, input_lengths, target_lengths, options.args());
}

Tensor TripletMarginLoss::forward(const Tensor& anchor, const Tensor& positive,
                                  const Tensor& negative) {
  return functional::triplet_margin_loss(anchor, positive, negative, options.args());
}

Tensor TripletMarginWithDistanceLoss::forward(const Tensor& anchor, const Tensor& positive,
                                              const Tensor& negative) {
  return functional::triplet_margin_with_distance_loss(anchor, positive, negative, options.args());
}

std::string PairwiseDistance::describe() const {
  return absl::StrCat("PairwiseDistance(p=", options->p, ")");
}

std::string CosineSimilarity::describe() const {
  return absl::StrCat("CosineSimilarity(dim=", options->dim, ")");
}

}  // namespace mytorch::nn
