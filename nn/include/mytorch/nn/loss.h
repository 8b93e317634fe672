// Losses as modules: loss(input, target). Each calls the function of nn::functional of the same
// name.
#pragma once

#include <cstdint>
#include <utility>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"
#include "mytorch/std_function.h"

namespace mytorch::nn {

// How a loss combines its terms.
enum class Reduction { kNone, kMean, kSum };
Reduction from_name(Str name, Reduction);  // NOLINT: named by its type
const char* name_of(Reduction reduction);  // PyTorch's: "none", "mean" or "sum"

class Loss : public Module {
 public:
  using Module::forward;
  using Module::Module;
  virtual Tensor forward(const Tensor& input, const Tensor& target) = 0;
  Tensor operator()(const Tensor& input, const Tensor& target);
};

// A loss with its options, whose weights are buffers.
template <class M, class Args>
class LossWith : public LayerWith<M, Args, Loss> {
 public:
  using LayerWith<M, Args, Loss>::LayerWith;
  explicit LossWith(Args options = {}) : LayerWith<M, Args, Loss>(std::move(options)) {
    Args& own = this->options.args();
    if constexpr (requires { own.weight; }) this->register_buffer("weight", own.weight);
    if constexpr (requires { own.pos_weight; }) this->register_buffer("pos_weight", own.pos_weight);
  }
};

// ---- regression ----

struct MSEArgs {
  OneOf<Reduction> reduction = Reduction::kMean;  // or "none", "mean", "sum"
};
using MSELossOptions = Options<MSEArgs>;

// (input - target)^2.
class MSELoss final : public LossWith<MSELoss, MSEArgs> {
 public:
  using LossWith::LossWith;
  explicit MSELoss(OneOf<Reduction> reduction) : LossWith({reduction}) {}
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct L1Args {
  OneOf<Reduction> reduction = Reduction::kMean;
};
using L1LossOptions = Options<L1Args>;

// |input - target|.
class L1Loss final : public LossWith<L1Loss, L1Args> {
 public:
  using LossWith::LossWith;
  explicit L1Loss(OneOf<Reduction> reduction) : LossWith({reduction}) {}
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct SmoothL1Args {
  double beta = 1;
  OneOf<Reduction> reduction = Reduction::kMean;
};
using SmoothL1LossOptions = Options<SmoothL1Args>;

// Quadratic for differences below `beta`, linear above.
class SmoothL1Loss final : public LossWith<SmoothL1Loss, SmoothL1Args> {
 public:
  using LossWith::LossWith;
  explicit SmoothL1Loss(double beta, OneOf<Reduction> reduction = Reduction::kMean)
      : LossWith({beta, reduction}) {}
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct HuberArgs {
  double delta = 1;
  OneOf<Reduction> reduction = Reduction::kMean;
};
using HuberLossOptions = Options<HuberArgs>;

// `delta` times SmoothL1Loss with beta = `delta`.
class HuberLoss final : public LossWith<HuberLoss, HuberArgs> {
 public:
  using LossWith::LossWith;
  explicit HuberLoss(double delta, OneOf<Reduction> reduction = Reduction::kMean)
      : LossWith({delta, reduction}) {}
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct PoissonNLLArgs {
  bool log_input = true;  // whether the input is the logarithm of the rate
  bool full = false;      // whether to add Stirling's approximation of log(target!)
  double eps = 1e-8;      // avoids log(0) without log_input
  OneOf<Reduction> reduction = Reduction::kMean;
};
using PoissonNLLLossOptions = Options<PoissonNLLArgs>;

// The negative log likelihood of counts from Poisson distributions of rate exp(input).
class PoissonNLLLoss final : public LossWith<PoissonNLLLoss, PoissonNLLArgs> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct GaussianNLLArgs {
  bool full = false;  // whether to add the constant log(2 pi) / 2
  double eps = 1e-6;  // the least variance
  OneOf<Reduction> reduction = Reduction::kMean;
};
using GaussianNLLLossOptions = Options<GaussianNLLArgs>;

// The negative log likelihood of targets from normal distributions of mean `input` and variance
// `var`, of the input's shape or one number for each row.
class GaussianNLLLoss final
    : public LayerWith<GaussianNLLLoss, GaussianNLLArgs, Callable<GaussianNLLLoss>> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& input, const Tensor& target, const Tensor& var);
};

// ---- classification ----

struct CrossEntropyArgs {
  Tensor weight = {};  // per class; undefined means all 1
  OneOf<Reduction> reduction = Reduction::kMean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};
using CrossEntropyLossOptions = Options<CrossEntropyArgs>;

// Takes logits (N, C, ...) and either class indices (N, ...) or probabilities (N, C, ...).
class CrossEntropyLoss final : public LossWith<CrossEntropyLoss, CrossEntropyArgs> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct NLLArgs {
  Tensor weight = {};  // per class; undefined means all 1
  OneOf<Reduction> reduction = Reduction::kMean;
  int64_t ignore_index = -100;
};
using NLLLossOptions = Options<NLLArgs>;

// Takes log-probabilities (N, C, ...) and class indices (N, ...).
class NLLLoss final : public LossWith<NLLLoss, NLLArgs> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct BCEArgs {
  Tensor weight = {};
  OneOf<Reduction> reduction = Reduction::kMean;
};
using BCELossOptions = Options<BCEArgs>;

// Takes probabilities and targets in [0, 1].
class BCELoss final : public LossWith<BCELoss, BCEArgs> {
 public:
  using LossWith::LossWith;
  explicit BCELoss(Tensor weight, OneOf<Reduction> reduction = Reduction::kMean)
      : LossWith({std::move(weight), reduction}) {}
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct BCEWithLogitsArgs {
  Tensor weight = {};
  Tensor pos_weight = {};  // factor on the terms of positive targets
  OneOf<Reduction> reduction = Reduction::kMean;
};
using BCEWithLogitsLossOptions = Options<BCEWithLogitsArgs>;

// Takes logits and targets in [0, 1].
class BCEWithLogitsLoss final : public LossWith<BCEWithLogitsLoss, BCEWithLogitsArgs> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

enum class KLReduction { kNone, kMean, kSum, kBatchMean };
KLReduction from_name(Str name, KLReduction);  // NOLINT: named by its type
const char* name_of(KLReduction reduction);

struct KLDivArgs {
  OneOf<KLReduction> reduction = KLReduction::kMean;
  bool log_target = false;
};
using KLDivLossOptions = Options<KLDivArgs>;

// Takes log-probabilities and either target probabilities or, with `log_target`, their logarithms.
class KLDivLoss final : public LossWith<KLDivLoss, KLDivArgs> {
 public:
  using LossWith::LossWith;
  explicit KLDivLoss(OneOf<KLReduction> reduction, bool log_target = false)
      : LossWith({reduction, log_target}) {}
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct MultiMarginArgs {
  int64_t p = 1;  // 1 or 2
  double margin = 1;
  Tensor weight = {};  // per class; undefined means all 1
  OneOf<Reduction> reduction = Reduction::kMean;
};
using MultiMarginLossOptions = Options<MultiMarginArgs>;

// The mean over the classes i other than y of max(0, margin - x[y] + x[i])^p. Takes scores (N, C)
// or (C) and class indices (N) or ().
class MultiMarginLoss final : public LossWith<MultiMarginLoss, MultiMarginArgs> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct MultiLabelMarginArgs {
  OneOf<Reduction> reduction = Reduction::kMean;
};
using MultiLabelMarginLossOptions = Options<MultiLabelMarginArgs>;

// The hinge loss between the scores of the labels and of all other classes, for scores (N, C) or
// (C) and labels of the same shape, each row of which ends at its first -1.
class MultiLabelMarginLoss final : public LossWith<MultiLabelMarginLoss, MultiLabelMarginArgs> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct MultiLabelSoftMarginArgs {
  Tensor weight = {};  // per class; undefined means all 1
  OneOf<Reduction> reduction = Reduction::kMean;
};
using MultiLabelSoftMarginLossOptions = Options<MultiLabelSoftMarginArgs>;

// The mean over the classes of the binary cross entropy of logits (..., C) with targets 0 or 1.
class MultiLabelSoftMarginLoss final
    : public LossWith<MultiLabelSoftMarginLoss, MultiLabelSoftMarginArgs> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct SoftMarginArgs {
  OneOf<Reduction> reduction = Reduction::kMean;
};
using SoftMarginLossOptions = Options<SoftMarginArgs>;

// log(1 + exp(-target * input)), for targets 1 and -1.
class SoftMarginLoss final : public LossWith<SoftMarginLoss, SoftMarginArgs> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

// ---- distances and ranks ----

struct HingeEmbeddingArgs {
  double margin = 1;
  OneOf<Reduction> reduction = Reduction::kMean;
};
using HingeEmbeddingLossOptions = Options<HingeEmbeddingArgs>;

// The input if the target is 1, max(0, margin - input) if it is -1.
class HingeEmbeddingLoss final : public LossWith<HingeEmbeddingLoss, HingeEmbeddingArgs> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct MarginRankingArgs {
  double margin = 0;
  OneOf<Reduction> reduction = Reduction::kMean;
};
using MarginRankingLossOptions = Options<MarginRankingArgs>;

// max(0, -target * (input1 - input2) + margin): a target of 1 ranks input1 higher, -1 lower.
class MarginRankingLoss final
    : public LayerWith<MarginRankingLoss, MarginRankingArgs, Callable<MarginRankingLoss>> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& input1, const Tensor& input2, const Tensor& target);
};

struct CosineEmbeddingArgs {
  double margin = 0;
  OneOf<Reduction> reduction = Reduction::kMean;
};
using CosineEmbeddingLossOptions = Options<CosineEmbeddingArgs>;

// 1 - cos(input1, input2) if the target is 1, max(0, cos - margin) if it is -1. Takes (N, D) and
// (N), or (D) and ().
class CosineEmbeddingLoss final
    : public LayerWith<CosineEmbeddingLoss, CosineEmbeddingArgs, Callable<CosineEmbeddingLoss>> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& input1, const Tensor& input2, const Tensor& target);
};

struct CTCArgs {
  int64_t blank = 0;  // the class that stands for no label
  OneOf<Reduction> reduction = Reduction::kMean;
  bool zero_infinity = false;  // whether a target that does not fit its input has loss 0
};
using CTCLossOptions = Options<CTCArgs>;

// Connectionist temporal classification (Graves et al., ICML 2006); see functional::ctc_loss.
class CTCLoss final : public LayerWith<CTCLoss, CTCArgs, Callable<CTCLoss>> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths);
};

struct TripletMarginArgs {
  double margin = 1;
  double p = 2;
  double eps = 1e-6;
  bool swap = false;  // whether to use the distance of positive and negative if that is smaller
  OneOf<Reduction> reduction = Reduction::kMean;
};
using TripletMarginLossOptions = Options<TripletMarginArgs>;

// max(0, |anchor - positive| - |anchor - negative| + margin), with norms of order p over the last
// dimension.
class TripletMarginLoss final
    : public LayerWith<TripletMarginLoss, TripletMarginArgs, Callable<TripletMarginLoss>> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative);
};

struct TripletMarginWithDistanceArgs {
  // Returns the distances of the pairs; undefined means PairwiseDistance().
  std::function<Tensor(const Tensor&, const Tensor&)> distance_function = {};
  double margin = 1;
  bool swap = false;  // whether to use the distance of positive and negative if that is smaller
  OneOf<Reduction> reduction = Reduction::kMean;
};
using TripletMarginWithDistanceLossOptions = Options<TripletMarginWithDistanceArgs>;

// TripletMarginLoss with distances of a function.
class TripletMarginWithDistanceLoss final
    : public LayerWith<TripletMarginWithDistanceLoss, TripletMarginWithDistanceArgs,
                       Callable<TripletMarginWithDistanceLoss>> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative);
};

struct PairwiseDistanceArgs {
  double p = 2;
  double eps = 1e-6;
  bool keepdim = false;
};
using PairwiseDistanceOptions = Options<PairwiseDistanceArgs>;

// The distance of vectors along the last dimension: the norm of order `p` of x1 - x2 + eps.
class PairwiseDistance final
    : public LayerWith<PairwiseDistance, PairwiseDistanceArgs, Callable<PairwiseDistance>> {
 public:
  using LayerWith::LayerWith;
  explicit PairwiseDistance(double p, double eps = 1e-6, bool keepdim = false)
      : LayerWith({p, eps, keepdim}) {}
  Tensor forward(const Tensor& x1, const Tensor& x2);
  std::string describe() const override;
};

struct CosineSimilarityArgs {
  int64_t dim = 1;
  double eps = 1e-8;
};
using CosineSimilarityOptions = Options<CosineSimilarityArgs>;

// The cosine of the angle between vectors along dimension `dim`.
class CosineSimilarity final
    : public LayerWith<CosineSimilarity, CosineSimilarityArgs, Callable<CosineSimilarity>> {
 public:
  using LayerWith::LayerWith;
  explicit CosineSimilarity(int64_t dim, double eps = 1e-8) : LayerWith({dim, eps}) {}
  Tensor forward(const Tensor& x1, const Tensor& x2);
  std::string describe() const override;
};

}  // namespace mytorch::nn
