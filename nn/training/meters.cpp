#include "mytorch/nn/training/meters.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops.h"
#include "nn/common/host_tensor.h"

namespace mytorch::nn {
namespace {

void check_scores(const char* what, const Tensor& scores, const Tensor& targets, bool classes) {
  const bool scored = scores.dim() == 2;
  if ((scored || (classes && scores.dim() == 1)) && targets.dim() == 1 &&
      scores.size(0) == targets.size(0)) {
    return;
  }
  fail(ErrorCode::kShape, "[", what, "] scores ", shape_str(scores.sizes()), " and targets ",
       shape_str(targets.sizes()), ": give (n, classes)", classes ? " or (n)" : "", " and (n)");
}

double ratio(int64_t part, int64_t all) {
  return all == 0 ? NAN : static_cast<double>(part) / static_cast<double>(all);
}

}  // namespace

void MeanMeter::add(double value, double weight) {
  sum_ += value * weight;
  weight_ += weight;
}

void MeanMeter::add(const Tensor& value, double weight) {
  if (value.numel() != 1) {
    fail(ErrorCode::kShape, "[MeanMeter] a tensor ", shape_str(value.sizes()),
         " is no single number: add its mean");
  }
  NoGradGuard no_grad;
  const Tensor added = value.detach().to(kFloat64).view(IntList()) * weight;
  device_sum_ = device_sum_.defined() ? device_sum_ + added : added;
  weight_ += weight;
}

double MeanMeter::value() const {
  const double sum = sum_ + (device_sum_.defined() ? device_sum_.item<double>() : 0);
  return weight_ == 0 ? NAN : sum / weight_;
}

TopKMeter::TopKMeter(int64_t k) : k_(k) {
  if (k < 1) fail(ErrorCode::kValue, "[TopKMeter] k ", k, " is out of range: give 1 or more");
}

void TopKMeter::add(const Tensor& scores, const Tensor& targets) {
  check_scores("TopKMeter", scores, targets, false);
  NoGradGuard no_grad;
  const Tensor column = targets.unsqueeze(1);
  Tensor best;
  if (k_ == 1) {
    best = scores.argmax(1, true);
  } else {
    best = std::get<1>(topk(scores, std::min(k_, scores.size(1)), 1));
  }
  const Tensor correct = best.eq(column).sum();
  correct_ = correct_.defined() ? correct_ + correct : correct;
  count_ += targets.size(0);
}

double TopKMeter::value() const {
  if (count_ == 0) return NAN;
  return correct_.item<double>() / static_cast<double>(count_);
}

void TopKMeter::reset() {
  count_ = 0;
  correct_ = {};
}

ConfusionMatrix::ConfusionMatrix(int64_t classes) : classes_(classes) {
  constexpr int64_t kMost = 1 << 14;
  if (classes < 1 || classes > kMost) {
    fail(ErrorCode::kValue, "[ConfusionMatrix] ", classes, " classes are out of range: give 1 to ",
         kMost);
  }
  reset();
}

void ConfusionMatrix::reset() { counts_.assign(static_cast<size_t>(classes_ * classes_), 0); }

void ConfusionMatrix::check_class(int64_t value) const {
  if (value < 0 || value >= classes_) {
    fail(ErrorCode::kValue, "[ConfusionMatrix] class ", value, " is out of range for ", classes_,
         " classes: give 0 to ", classes_ - 1);
  }
}

void ConfusionMatrix::add(const Tensor& predicted, const Tensor& targets) {
  check_scores("ConfusionMatrix", predicted, targets, true);
  NoGradGuard no_grad;
  const auto host = [](const Tensor& tensor) { return tensor.to(kCPU).to(kInt64).contiguous(); };
  const Tensor classes = host(predicted.dim() == 2 ? predicted.argmax(1) : predicted);
  const Tensor truth = host(targets);
  const int64_t* columns = classes.const_data<int64_t>();
  const int64_t* rows = truth.const_data<int64_t>();
  for (int64_t i = 0; i < truth.numel(); ++i) check_class(rows[i]), check_class(columns[i]);
  for (int64_t i = 0; i < truth.numel(); ++i) {
    ++counts_[static_cast<size_t>(rows[i] * classes_ + columns[i])];
  }
}

int64_t ConfusionMatrix::count(int64_t target, int64_t predicted) const {
  check_class(target);
  check_class(predicted);
  return counts_[static_cast<size_t>(target * classes_ + predicted)];
}

double ConfusionMatrix::accuracy() const {
  int64_t right = 0, all = 0;
  for (int64_t c = 0; c < classes_; ++c) right += count(c, c);
  for (int64_t n : counts_) all += n;
  return ratio(right, all);
}

double ConfusionMatrix::precision(int64_t of_class) const {
  int64_t all = 0;
  for (int64_t c = 0; c < classes_; ++c) all += count(c, of_class);
  return ratio(count(of_class, of_class), all);
}

double ConfusionMatrix::recall(int64_t of_class) const {
  int64_t all = 0;
  for (int64_t c = 0; c < classes_; ++c) all += count(of_class, c);
  return ratio(count(of_class, of_class), all);
}

Tensor ConfusionMatrix::tensor() const {
  Tensor matrix = fresh_host_tensor({classes_, classes_}, kInt64);
  std::memcpy(fresh_data(matrix), counts_.data(), counts_.size() * sizeof(int64_t));
  return matrix;
}

std::string ConfusionMatrix::str(const std::vector<std::string>& class_names) const {
  const auto name = [&](int64_t c) {
    const auto i = static_cast<size_t>(c);
    return i < class_names.size() ? class_names[i] : absl::StrCat(c);
  };
  size_t widest = 5, number = 5;
  for (int64_t c = 0; c < classes_; ++c) widest = std::max(widest, name(c).size());
  for (int64_t n : counts_) number = std::max(number, absl::StrCat(n).size());
  std::string table(widest, ' ');
  for (int64_t c = 0; c < classes_; ++c) {
    absl::StrAppendFormat(&table, " %*s", static_cast<int>(number), name(c).substr(0, number));
  }
  absl::StrAppend(&table, " precision recall\n");
  for (int64_t row = 0; row < classes_; ++row) {
    absl::StrAppendFormat(&table, "%-*s", static_cast<int>(widest), name(row));
    for (int64_t c = 0; c < classes_; ++c) {
      absl::StrAppendFormat(&table, " %*d", static_cast<int>(number), count(row, c));
    }
    absl::StrAppendFormat(&table, " %9.4f %6.4f\n", precision(row), recall(row));
  }
  return table;
}

}  // namespace mytorch::nn
