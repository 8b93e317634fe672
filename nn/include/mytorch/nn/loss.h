// Losses as modules: loss(input, target). Each calls the function of nn::functional of the same
// name.
#pragma once

#include <cstdint>
#include <utility>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

// How a loss combines its terms.
enum class Reduction { kNone, kMean, kSum };
Reduction from_name(Str name, Reduction);  // NOLINT: named by its type
const char* name_of(Reduction reduction);  // PyTorch's: "none", "mean" or "sum"

class Loss : public Module {
 public:
  using Module::forward;
  virtual Tensor forward(const Tensor& input, const Tensor& target) = 0;
  Tensor operator()(const Tensor& input, const Tensor& target);
};

// A loss with options.
template <class Options>
class LossWith : public Loss {
 public:
  explicit LossWith(Options options = {}) : options_(std::move(options)) {}
  using Loss::forward;

 protected:
  Options options_;
};

// A loss of more tensors.
template <class M, class Options>
class CallableLossWith : public Callable<M> {
 public:
  explicit CallableLossWith(Options options = {}) : options_(std::move(options)) {}

 protected:
  Options options_;
};

// ---- regression ----

struct MSEOptions {
  OneOf<Reduction> reduction = Reduction::kMean;  // or "none", "mean", "sum"
};

// (input - target)^2.
class MSELoss final : public LossWith<MSEOptions> {
 public:
  using LossWith::LossWith;
  explicit MSELoss(OneOf<Reduction> reduction) : LossWith({reduction}) {}
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct L1Options {
  OneOf<Reduction> reduction = Reduction::kMean;
};

// |input - target|.
class L1Loss final : public LossWith<L1Options> {
 public:
  using LossWith::LossWith;
  explicit L1Loss(OneOf<Reduction> reduction) : LossWith({reduction}) {}
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct SmoothL1Options {
  double beta = 1;
  OneOf<Reduction> reduction = Reduction::kMean;
};

// Quadratic for differences below `beta`, linear above.
class SmoothL1Loss final : public LossWith<SmoothL1Options> {
 public:
  using LossWith::LossWith;
  explicit SmoothL1Loss(double beta, OneOf<Reduction> reduction = Reduction::kMean)
      : LossWith({beta, reduction}) {}
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct HuberOptions {
  double delta = 1;
  OneOf<Reduction> reduction = Reduction::kMean;
};

// `delta` times SmoothL1Loss with beta = `delta`.
class HuberLoss final : public LossWith<HuberOptions> {
 public:
  using LossWith::LossWith;
  explicit HuberLoss(double delta, OneOf<Reduction> reduction = Reduction::kMean)
      : LossWith({delta, reduction}) {}
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct PoissonNLLOptions {
  bool log_input = true;  // whether the input is the logarithm of the rate
  bool full = false;      // whether to add Stirling's approximation of log(target!)
  double eps = 1e-8;      // avoids log(0) without log_input
  OneOf<Reduction> reduction = Reduction::kMean;
};

// The negative log likelihood of counts from Poisson distributions of rate exp(input).
class PoissonNLLLoss final : public LossWith<PoissonNLLOptions> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct GaussianNLLOptions {
  bool full = false;  // whether to add the constant log(2 pi) / 2
  double eps = 1e-6;  // the least variance
  OneOf<Reduction> reduction = Reduction::kMean;
};

// The negative log likelihood of targets from normal distributions of mean `input` and variance
// `var`, of the input's shape or one number for each row.
class GaussianNLLLoss final : public CallableLossWith<GaussianNLLLoss, GaussianNLLOptions> {
 public:
  using CallableLossWith::CallableLossWith;
  Tensor forward(const Tensor& input, const Tensor& target, const Tensor& var);
};

// ---- classification ----

struct CrossEntropyOptions {
  Tensor weight = {};  // per class; undefined means all 1
  OneOf<Reduction> reduction = Reduction::kMean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};

// Takes logits (N, C, ...) and either class indices (N, ...) or probabilities (N, C, ...).
class CrossEntropyLoss final : public LossWith<CrossEntropyOptions> {
 public:
  explicit CrossEntropyLoss(CrossEntropyOptions options = {});
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct NLLOptions {
  Tensor weight = {};  // per class; undefined means all 1
  OneOf<Reduction> reduction = Reduction::kMean;
  int64_t ignore_index = -100;
};

// Takes log-probabilities (N, C, ...) and class indices (N, ...).
class NLLLoss final : public LossWith<NLLOptions> {
 public:
  explicit NLLLoss(NLLOptions options = {});
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct BCEOptions {
  Tensor weight = {};
  OneOf<Reduction> reduction = Reduction::kMean;
};

// Takes probabilities and targets in [0, 1].
class BCELoss final : public LossWith<BCEOptions> {
 public:
  explicit BCELoss(BCEOptions options = {});
  explicit BCELoss(Tensor weight, OneOf<Reduction> reduction = Reduction::kMean)
      : BCELoss(BCEOptions{std::move(weight), reduction}) {}
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct BCEWithLogitsOptions {
  Tensor weight = {};
  Tensor pos_weight = {};  // factor on the terms of positive targets
  OneOf<Reduction> reduction = Reduction::kMean;
};

// Takes logits and targets in [0, 1].
class BCEWithLogitsLoss final : public LossWith<BCEWithLogitsOptions> {
 public:
  explicit BCEWithLogitsLoss(BCEWithLogitsOptions options = {});
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

enum class KLReduction { kNone, kMean, kSum, kBatchMean };
KLReduction from_name(Str name, KLReduction);  // NOLINT: named by its type
const char* name_of(KLReduction reduction);

struct KLDivOptions {
  OneOf<KLReduction> reduction = KLReduction::kMean;
  bool log_target = false;
};

// Takes log-probabilities and either target probabilities or, with `log_target`, their logarithms.
class KLDivLoss final : public LossWith<KLDivOptions> {
 public:
  using LossWith::LossWith;
  explicit KLDivLoss(OneOf<KLReduction> reduction, bool log_target = false)
      : LossWith({reduction, log_target}) {}
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct MultiMarginOptions {
  int64_t p = 1;  // 1 or 2
  double margin = 1;
  Tensor weight = {};  // per class; undefined means all 1
  OneOf<Reduction> reduction = Reduction::kMean;
};

// The mean over the classes i other than y of max(0, margin - x[y] + x[i])^p. Takes scores (N, C)
// or (C) and class indices (N) or ().
class MultiMarginLoss final : public LossWith<MultiMarginOptions> {
 public:
  explicit MultiMarginLoss(MultiMarginOptions options = {});
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct MultiLabelMarginOptions {
  OneOf<Reduction> reduction = Reduction::kMean;
};

// The hinge loss between the scores of the labels and of all other classes, for scores (N, C) or
// (C) and labels of the same shape, each row of which ends at its first -1.
class MultiLabelMarginLoss final : public LossWith<MultiLabelMarginOptions> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct MultiLabelSoftMarginOptions {
  Tensor weight = {};  // per class; undefined means all 1
  OneOf<Reduction> reduction = Reduction::kMean;
};

// The mean over the classes of the binary cross entropy of logits (..., C) with targets 0 or 1.
class MultiLabelSoftMarginLoss final : public LossWith<MultiLabelSoftMarginOptions> {
 public:
  explicit MultiLabelSoftMarginLoss(MultiLabelSoftMarginOptions options = {});
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct SoftMarginOptions {
  OneOf<Reduction> reduction = Reduction::kMean;
};

// log(1 + exp(-target * input)), for targets 1 and -1.
class SoftMarginLoss final : public LossWith<SoftMarginOptions> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

// ---- distances and ranks ----

struct HingeEmbeddingOptions {
  double margin = 1;
  OneOf<Reduction> reduction = Reduction::kMean;
};

// The input if the target is 1, max(0, margin - input) if it is -1.
class HingeEmbeddingLoss final : public LossWith<HingeEmbeddingOptions> {
 public:
  using LossWith::LossWith;
  Tensor forward(const Tensor& input, const Tensor& target) override;
};

struct MarginRankingOptions {
  double margin = 0;
  OneOf<Reduction> reduction = Reduction::kMean;
};

// max(0, -target * (input1 - input2) + margin): a target of 1 ranks input1 higher, -1 lower.
class MarginRankingLoss final : public CallableLossWith<MarginRankingLoss, MarginRankingOptions> {
 public:
  using CallableLossWith::CallableLossWith;
  Tensor forward(const Tensor& input1, const Tensor& input2, const Tensor& target);
};

struct CosineEmbeddingOptions {
  double margin = 0;
  OneOf<Reduction> reduction = Reduction::kMean;
};

// 1 - cos(input1, input2) if the target is 1, max(0, cos - margin) if it is -1. Takes (N, D) and
// (N), or (D) and ().
class CosineEmbeddingLoss final
    : public CallableLossWith<CosineEmbeddingLoss, CosineEmbeddingOptions> {
 public:
  using CallableLossWith::CallableLossWith;
  Tensor forward(const Tensor& input1, const Tensor& input2, const Tensor& target);
};

struct TripletMarginOptions {
  double margin = 1;
  double p = 2;
  double eps = 1e-6;
  bool swap = false;  // whether to use the distance of positive and negative if that is smaller
  OneOf<Reduction> reduction = Reduction::kMean;
};

// max(0, |anchor - positive| - |anchor - negative| + margin), with norms of order p over the last
// dimension.
class TripletMarginLoss final : public CallableLossWith<TripletMarginLoss, TripletMarginOptions> {
 public:
  using CallableLossWith::CallableLossWith;
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative);
};

// The distance of vectors along a dimension: the norm of order `p` of x1 - x2 + eps.
class PairwiseDistance final : public Callable<PairwiseDistance> {
 public:
  explicit PairwiseDistance(double p = 2, double eps = 1e-6, bool keepdim = false)
      : p_(p), eps_(eps), keepdim_(keepdim) {}
  Tensor forward(const Tensor& x1, const Tensor& x2);
  std::string describe() const override;

 private:
  double p_;
  double eps_;
  bool keepdim_;
};

// The cosine of the angle between vectors along dimension `dim`.
class CosineSimilarity final : public Callable<CosineSimilarity> {
 public:
  explicit CosineSimilarity(int64_t dim = 1, double eps = 1e-8) : dim_(dim), eps_(eps) {}
  Tensor forward(const Tensor& x1, const Tensor& x2);
  std::string describe() const override;

 private:
  int64_t dim_;
  double eps_;
};

}  // namespace mytorch::nn
