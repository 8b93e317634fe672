#include "mytorch/nn/loss.h"

#include "mytorch/ops/binary_cross_entropy.h"
#include "mytorch/ops/binary_cross_entropy_with_logits.h"
#include "mytorch/ops/cross_entropy.h"
#include "mytorch/ops/huber_loss.h"
#include "mytorch/ops/kl_div.h"
#include "mytorch/ops/l1_loss.h"
#include "mytorch/ops/mse_loss.h"
#include "mytorch/ops/nll_loss.h"
#include "mytorch/ops/smooth_l1_loss.h"

namespace mytorch::nn {
namespace {

const char* name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone:
      return "none";
    case Reduction::kSum:
      return "sum";
    case Reduction::kMean:
      break;
  }
  return "mean";
}

const char* name(KLReduction reduction) {
  switch (reduction) {
    case KLReduction::kNone:
      return "none";
    case KLReduction::kSum:
      return "sum";
    case KLReduction::kBatchMean:
      return "batchmean";
    case KLReduction::kMean:
      break;
  }
  return "mean";
}

}  // namespace

Tensor MSELoss::forward(const Tensor& input, const Tensor& target) {
  return mse_loss(input, target, name(reduction_));
}

Tensor L1Loss::forward(const Tensor& input, const Tensor& target) {
  return l1_loss(input, target, name(reduction_));
}

Tensor SmoothL1Loss::forward(const Tensor& input, const Tensor& target) {
  return smooth_l1_loss(input, target, name(reduction_), beta_);
}

Tensor HuberLoss::forward(const Tensor& input, const Tensor& target) {
  return huber_loss(input, target, name(reduction_), delta_);
}

CrossEntropyLoss::CrossEntropyLoss(CrossEntropyOptions options) : options_(std::move(options)) {
  register_buffer("weight", options_.weight);
}

Tensor CrossEntropyLoss::forward(const Tensor& input, const Tensor& target) {
  return cross_entropy(input, target, options_.weight, name(options_.reduction),
                       options_.ignore_index, options_.label_smoothing);
}

NLLLoss::NLLLoss(NLLOptions options) : options_(std::move(options)) {
  register_buffer("weight", options_.weight);
}

Tensor NLLLoss::forward(const Tensor& input, const Tensor& target) {
  return nll_loss(input, target, options_.weight, name(options_.reduction), options_.ignore_index);
}

BCELoss::BCELoss(Tensor weight, Reduction reduction)
    : weight_(std::move(weight)), reduction_(reduction) {
  register_buffer("weight", weight_);
}

Tensor BCELoss::forward(const Tensor& input, const Tensor& target) {
  return binary_cross_entropy(input, target, weight_, name(reduction_));
}

BCEWithLogitsLoss::BCEWithLogitsLoss(BCEWithLogitsOptions options) : options_(std::move(options)) {
  register_buffer("weight", options_.weight);
  register_buffer("pos_weight", options_.pos_weight);
}

Tensor BCEWithLogitsLoss::forward(const Tensor& input, const Tensor& target) {
  return binary_cross_entropy_with_logits(input, target, options_.weight, options_.pos_weight,
                                          name(options_.reduction));
}

Tensor KLDivLoss::forward(const Tensor& input, const Tensor& target) {
  return kl_div(input, target, name(reduction_), log_target_);
}

}  // namespace mytorch::nn
