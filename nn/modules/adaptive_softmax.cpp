#include "mytorch/nn/adaptive_softmax.h"

#include <cmath>

#include "mytorch/ops/argmax.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/ge.h"
#include "mytorch/ops/index_add.h"
#include "mytorch/ops/index_copy.h"
#include "mytorch/ops/index_fill.h"
#include "mytorch/ops/index_select.h"
#include "mytorch/ops/log_softmax.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/lt.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/nonzero.h"
#include "nn/functional/options.h"

namespace mytorch::nn {
namespace {

constexpr const char* kName = "AdaptiveLogSoftmaxWithLoss";

// Returns the integral part of in_features / div_value^power, of the exact quotient as Python's //
// has it: widths are part of the state.
int64_t cluster_width(int64_t in_features, double div_value, size_t power) {
  const double in = static_cast<double>(in_features);
  const double divisor = std::pow(div_value, static_cast<double>(power));
  const double width = divisor > 0 ? std::round((in - std::fmod(in, divisor)) / divisor) : INFINITY;
  if (!(width >= 0 && width <= INT32_MAX)) {
    fail(ErrorCode::kValue, "[", kName, "] div_value ", div_value, " gives cluster ", power - 1,
         " a width of ", width, " for in_features ", in_features, ": give a number above 1");
  }
  return static_cast<int64_t>(width);
}

// Returns the rows in which the 1-dim `mask` is true.
Tensor rows_of(const Tensor& mask) { return nonzero(mask).squeeze(1); }

}  // namespace

AdaptiveLogSoftmaxWithLoss::AdaptiveLogSoftmaxWithLoss(int64_t in_features, int64_t n_classes,
                                                       IntList cutoffs,
                                                       AdaptiveLogSoftmaxWithLossArgs options)
    : options({options, in_features, n_classes, cutoffs.vec()}) {
  check_at_least(kName, 1, {{"in_features", in_features}, {"n_classes", n_classes}});
  int64_t least = 1;
  bool ascending = !this->options->cutoffs.empty();
  for (const int64_t cutoff : this->options->cutoffs) {
    ascending = ascending && cutoff >= least && cutoff < n_classes;
    if (ascending) least = cutoff + 1;
  }
  if (!ascending) {
    fail(ErrorCode::kValue, "[", kName, "] cutoffs are ", shape_str(this->options->cutoffs),
         ": give ascending numbers from 1 to n_classes - 1, ", n_classes - 1);
  }
  if (!(options.div_value > 0)) {
    fail(ErrorCode::kValue, "[", kName, "] div_value is ", options.div_value,
         ": give a number above 1");
  }
  const int64_t clusters = static_cast<int64_t>(this->options->cutoffs.size());
  head = Linear(in_features, this->options->cutoffs[0] + clusters, options.head_bias);
  for (size_t i = 0; i < this->options->cutoffs.size(); ++i) {
    const int64_t width = cluster_width(in_features, options.div_value, i + 1);
    const int64_t end =
        i + 1 < this->options->cutoffs.size() ? this->options->cutoffs[i + 1] : n_classes;
    tail.push_back(Sequential(Linear(in_features, width, false),
                              Linear(width, end - this->options->cutoffs[i], false)));
  }
  register_module("head", head);
  register_module("tail", tail);
}

void AdaptiveLogSoftmaxWithLoss::reset_parameters() {
  head.reset_parameters();
  for (size_t i = 0; i < tail.size(); ++i) {
    for (const size_t layer : {0, 1}) {
      tail.at<Sequential>(i).at<Linear>(layer).reset_parameters();
    }
  }
}

ASMoutput AdaptiveLogSoftmaxWithLoss::forward(const Tensor& input, const Tensor& target) {
  const bool batched = target.dim() == 1;
  if (target.dim() > 1 || input.dim() != target.dim() + 1 ||
      input.size(-1) != options->in_features || (batched && input.size(0) != target.size(0))) {
    fail(ErrorCode::kShape, "[", kName, "] input ", shape_str(input.sizes()), " and target ",
         shape_str(target.sizes()), ": give (N, ", options->in_features, ") and (N), or (",
         options->in_features, ") and ()");
  }
  if (target.dtype() != kInt64) {
    fail(ErrorCode::kType, "[", kName, "] target is ", target.dtype(), ": give int64 classes");
  }
  const Tensor x = batched ? input : input.unsqueeze(0);
  const Tensor classes = batched ? target : target.unsqueeze(0);
  int64_t known = rows_of(logical_and(ge(classes, 0), lt(classes, options->cutoffs[0]))).numel();
  Tensor places = classes;  // in the head
  Tensor output;            // of the clusters
  for (size_t i = 0; i < options->cutoffs.size(); ++i) {
    const int64_t end =
        i + 1 < options->cutoffs.size() ? options->cutoffs[i + 1] : options->n_classes;
    const Tensor rows = rows_of(logical_and(ge(classes, options->cutoffs[i]), lt(classes, end)));
    if (rows.numel() == 0) continue;
    known += rows.numel();
    const Tensor own = log_softmax(tail[i](index_select(x, 0, rows)), 1);
    const Tensor within = index_select(classes, 0, rows) - options->cutoffs[i];
    const Tensor chosen = gather(own, 1, within.unsqueeze(1)).squeeze(1);
    if (!output.defined()) output = chosen.new_zeros({classes.numel()});
    output = index_add(output, 0, rows, chosen);
    places = index_fill(places, 0, rows, options->cutoffs[0] + static_cast<int64_t>(i));
  }
  if (known != classes.numel()) {
    fail(ErrorCode::kValue, "[", kName, "] target has classes outside of 0 to ",
         options->n_classes - 1);
  }
  const Tensor chosen = gather(log_softmax(head(x), 1), 1, places.unsqueeze(1)).squeeze(1);
  output = output.defined() ? output + chosen : chosen;
  const Tensor loss = -mean(output);
  return {batched ? output : output.squeeze(0), loss};
}

void AdaptiveLogSoftmaxWithLoss::check_input(const Tensor& input) const {
  if (input.dim() != 2 || input.size(1) != options->in_features) {
    fail(ErrorCode::kShape, "[", kName, "] input ", shape_str(input.sizes()), ": give (N, ",
         options->in_features, ")");
  }
}

Tensor AdaptiveLogSoftmaxWithLoss::all_classes(const Tensor& input, const Tensor& head_output) {
  const Tensor places = log_softmax(head_output, 1);
  std::vector<Tensor> parts{places.narrow(1, 0, options->cutoffs[0])};
  for (size_t i = 0; i < options->cutoffs.size(); ++i) {
    parts.push_back(log_softmax(tail[i](input), 1) +
                    places.narrow(1, options->cutoffs[0] + static_cast<int64_t>(i), 1));
  }
  return cat(parts, 1);
}

Tensor AdaptiveLogSoftmaxWithLoss::log_prob(const Tensor& input) {
  check_input(input);
  return all_classes(input, head(input));
}

Tensor AdaptiveLogSoftmaxWithLoss::predict(const Tensor& input) {
  check_input(input);
  const Tensor head_output = head(input);
  Tensor best = argmax(head_output, 1);
  const Tensor rows = rows_of(ge(best, options->cutoffs[0]));
  if (rows.numel() == 0) return best;
  const Tensor all = all_classes(index_select(input, 0, rows), index_select(head_output, 0, rows));
  return index_copy(best, 0, rows, argmax(all, 1));
}

std::string AdaptiveLogSoftmaxWithLoss::describe() const {
  return absl::StrCat(kName, "(", options->in_features, ", ", options->n_classes,
                      ", cutoffs=", shape_str(options->cutoffs), ", div_value=", options->div_value,
                      ", head_bias=", text(options->head_bias), ")");
}

}  // namespace mytorch::nn
