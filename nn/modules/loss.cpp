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

// ---- constructors of losses with buffers ----

CrossEntropyLoss::CrossEntropyLoss(CrossEntropyArgs options) : LayerWith(std::move(options)) {
  register_buffer("weight", options_.weight);
}

NLLLoss::NLLLoss(NLLArgs options) : LayerWith(std::move(options)) {
  register_buffer("weight", options_.weight);
}

BCELoss::BCELoss(BCEArgs options) : LayerWith(std::move(options)) {
  register_buffer("weight", options_.weight);
}

BCEWithLogitsLoss::BCEWithLogitsLoss(BCEWithLogitsArgs options) : LayerWith(std::move(options)) {
  register_buffer("weight", options_.weight);
  register_buffer("pos_weight", options_.pos_weight);
}

MultiMarginLoss::MultiMarginLoss(MultiMarginArgs options) : LayerWith(std::move(options)) {
  register_buffer("weight", options_.weight);
}

MultiLabelSoftMarginLoss::MultiLabelSoftMarginLoss(MultiLabelSoftMarginArgs options)
    : LayerWith(std::move(options)) {
  register_buffer("weight", options_.weight);
}

// ---- forward ----

Tensor MSELoss::forward(const Tensor& input, const Tensor& target) {
  return functional::mse_loss(input, target, options_);
}

Tensor L1Loss::forward(const Tensor& input, const Tensor& target) {
  return functional::l1_loss(input, target, options_);
}

Tensor SmoothL1Loss::forward(const Tensor& input, const Tensor& target) {
  return functional::smooth_l1_loss(input, target, options_);
}

Tensor HuberLoss::forward(const Tensor& input, const Tensor& target) {
  return functional::huber_loss(input, target, options_);
}

Tensor PoissonNLLLoss::forward(const Tensor& input, const Tensor& target) {
  return functional::poisson_nll_loss(input, target, options_);
}

Tensor GaussianNLLLoss::forward(const Tensor& input, const Tensor& target, const Tensor& var) {
  return functional::gaussian_nll_loss(input, target, var, options_);
}

Tensor CrossEntropyLoss::forward(const Tensor& input, const Tensor& target) {
  return functional::cross_entropy(input, target, options_);
}

Tensor NLLLoss::forward(const Tensor& input, const Tensor& target) {
  return functional::nll_loss(input, target, options_);
}

Tensor BCELoss::forward(const Tensor& input, const Tensor& target) {
  return functional::binary_cross_entropy(input, target, options_);
}

Tensor BCEWithLogitsLoss::forward(const Tensor& input, const Tensor& target) {
  return functional::binary_cross_entropy_with_logits(input, target, options_);
}

Tensor KLDivLoss::forward(const Tensor& input, const Tensor& target) {
  return functional::kl_div(input, target, options_);
}

Tensor MultiMarginLoss::forward(const Tensor& input, const Tensor& target) {
  return functional::multi_margin_loss(input, target, options_);
}

Tensor MultiLabelMarginLoss::forward(const Tensor& input, const Tensor& target) {
  return functional::multilabel_margin_loss(input, target, options_);
}

Tensor MultiLabelSoftMarginLoss::forward(const Tensor& input, const Tensor& target) {
  return functional::multilabel_soft_margin_loss(input, target, options_);
}

Tensor SoftMarginLoss::forward(const Tensor& input, const Tensor& target) {
  return functional::soft_margin_loss(input, target, options_);
}

Tensor HingeEmbeddingLoss::forward(const Tensor& input, const Tensor& target) {
  return functional::hinge_embedding_loss(input, target, options_);
}

Tensor MarginRankingLoss::forward(const Tensor& input1, const Tensor& input2,
                                  const Tensor& target) {
  return functional::margin_ranking_loss(input1, input2, target, options_);
}

Tensor CosineEmbeddingLoss::forward(const Tensor& input1, const Tensor& input2,
                                    const Tensor& target) {
  return functional::cosine_embedding_loss(input1, input2, target, options_);
}

Tensor CTCLoss::forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                        const Tensor& target_lengths) {
  return functional::ctc_loss(log_probs, targets, input_lengths, target_lengths, options_);
}

Tensor TripletMarginLoss::forward(const Tensor& anchor, const Tensor& positive,
                                  const Tensor& negative) {
  return functional::triplet_margin_loss(anchor, positive, negative, options_);
}

Tensor TripletMarginWithDistanceLoss::forward(const Tensor& anchor, const Tensor& positive,
                                              const Tensor& negative) {
  return functional::triplet_margin_with_distance_loss(anchor, positive, negative, options_);
}

Tensor PairwiseDistance::forward(const Tensor& x1, const Tensor& x2) {
  return functional::pairwise_distance(x1, x2, options_);
}

std::string PairwiseDistance::describe() const {
  return absl::StrCat("PairwiseDistance(p=", options_.p, ")");
}

Tensor CosineSimilarity::forward(const Tensor& x1, const Tensor& x2) {
  return functional::cosine_similarity(x1, x2, options_);
}

std::string CosineSimilarity::describe() const {
  return absl::StrCat("CosineSimilarity(dim=", options_.dim, ")");
}

}  // namespace mytorch::nn
