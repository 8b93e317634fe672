// The adaptive softmax, for classes of very different frequency.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/nn/container.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

struct AdaptiveLogSoftmaxWithLossArgs {
  double div_value = 4;    // by which the width of each cluster is smaller than the one before
  bool head_bias = false;  // whether the head has a bias
};
using AdaptiveLogSoftmaxWithLossOptions =
    Options<AdaptiveLogSoftmaxWithLossArgs, int64_t, int64_t, std::vector<int64_t>>;

struct AdaptiveLogSoftmaxWithLossAllArgs : AdaptiveLogSoftmaxWithLossArgs {
  int64_t in_features = 0;
  int64_t n_classes = 0;
  std::vector<int64_t> cutoffs = {};
};

// The result of AdaptiveLogSoftmaxWithLoss.
struct ASMoutput {
  Tensor output;  // the log-probability of each target
  Tensor loss;    // 0-dim: the mean of -output
};

// The softmax of Grave et al., ICML 2017, for classes that are sorted by frequency, the most
// frequent one first. The head has the classes below cutoffs[0] and one place for each cluster; the
// cluster i has the classes from cutoffs[i] to cutoffs[i + 1], and computes them from in_features /
// div_value^(i + 1) features. A cluster without targets costs nothing.
class AdaptiveLogSoftmaxWithLoss final : public Callable<AdaptiveLogSoftmaxWithLoss> {
 public:
  using Callable::Callable;
  // `cutoffs` ascend, from 1 or more to n_classes - 1 or less.
  AdaptiveLogSoftmaxWithLoss(int64_t in_features, int64_t n_classes, IntList cutoffs,
                             AdaptiveLogSoftmaxWithLossArgs options = {});
  // Takes (N, in_features) and int64 classes (N), or (in_features) and (). Reads the targets on the
  // host. Throws Error(kShape, kType or kValue).
  ASMoutput forward(const Tensor& input, const Tensor& target);
  // Returns the log-probabilities of all classes: (N, in_features) to (N, n_classes).
  Tensor log_prob(const Tensor& input);
  // Returns the most probable classes, argmax(log_prob(input), 1). Computes log_prob only of those
  // rows whose class is in a cluster.
  Tensor predict(const Tensor& input);
  std::string describe() const override;
  void reset_parameters();

  Linear head{nullptr};
  ModuleList tail;  // a Sequential of two Linear for each cluster
  BuiltOptions<AdaptiveLogSoftmaxWithLossAllArgs> options;

 private:
  void check_input(const Tensor& input) const;
  Tensor all_classes(const Tensor& input, const Tensor& head_output);
};

}  // namespace mytorch::nn
