// Losses as modules: loss(input, target). Each calls the operator of the same name.
#pragma once

#include <cstdint>
#include <utility>

#include "mytorch/nn/module.h"

namespace mytorch::nn {

// How a loss combines its terms.
enum class Reduction { kNone, kMean, kSum };

class Loss : public Module {
 public:
  using Module::forward;
  virtual Tensor forward(const Tensor& input, const Tensor& target) = 0;
  Tensor operator()(const Tensor& input, const Tensor& target) { return forward(input, target); }
};

// (input - target)^2.
class MSELoss final : public Loss {
 public:
  explicit MSELoss(Reduction reduction = Reduction::kMean) : reduction_(reduction) {}
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;

 private:
  Reduction reduction_;
};

// input - target|.
class L1Loss final : public Loss {
 public:
  explicit L1Loss(Reduction reduction = Reduction::kMean) : reduction_(reduction) {}
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;

 private:
  Reduction reduction_;
};

// Quadratic for differences below `beta`, linear above.
class SmoothL1Loss final : public Loss {
 public:
  explicit SmoothL1Loss(double beta = 1, Reduction reduction = Reduction::kMean)
      : beta_(beta), reduction_(reduction) {}
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;

 private:
  double beta_;
  Reduction reduction_;
};

class HuberLoss final : public Loss {
 public:
  explicit HuberLoss(double delta = 1, Reduction reduction = Reduction::kMean)
      : delta_(delta), reduction_(reduction) {}
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;

 private:
  double delta_;
  Reduction reduction_;
};

struct CrossEntropyOptions {
  Tensor weight = {};  // per class; undefined means all 1
  Reduction reduction = Reduction::kMean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};

// Takes logits (N, C, ...) and either class indices (N, ...) or probabilities (N, C, ...).
class CrossEntropyLoss final : public Loss {
 public:
  explicit CrossEntropyLoss(CrossEntropyOptions options = {});
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;

 private:
  CrossEntropyOptions options_;
};

struct NLLOptions {
  Tensor weight = {};  // per class; undefined means all 1
  Reduction reduction = Reduction::kMean;
  int64_t ignore_index = -100;
};

// Takes log-probabilities (N, C, ...) and class indices (N, ...).
class NLLLoss final : public Loss {
 public:
  explicit NLLLoss(NLLOptions options = {});
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;

 private:
  NLLOptions options_;
};

// Takes probabilities and targets in [0, 1].
class BCELoss final : public Loss {
 public:
  explicit BCELoss(Tensor weight = {}, Reduction reduction = Reduction::kMean);
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;

 private:
  Tensor weight_;
  Reduction reduction_;
};

struct BCEWithLogitsOptions {
  Tensor weight = {};
  Tensor pos_weight = {};  // factor on the terms of positive targets
  Reduction reduction = Reduction::kMean;
};

// Takes logits and targets in [0, 1].
class BCEWithLogitsLoss final : public Loss {
 public:
  explicit BCEWithLogitsLoss(BCEWithLogitsOptions options = {});
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;

 private:
  BCEWithLogitsOptions options_;
};

enum class KLReduction { kNone, kMean, kSum, kBatchMean };

// Takes log-probabilities and either target probabilities or, with `log_target`, their logarithms.
class KLDivLoss final : public Loss {
 public:
  explicit KLDivLoss(KLReduction reduction = KLReduction::kMean, bool log_target = false)
      : reduction_(reduction), log_target_(log_target) {}
  using Loss::forward;
  Tensor forward(const Tensor& input, const Tensor& target) override;

 private:
  KLReduction reduction_;
  bool log_target_;
};

}  // namespace mytorch::nn
