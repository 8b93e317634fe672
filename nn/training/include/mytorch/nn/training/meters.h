// Averages over the batches of an epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::nn {

// The weighted mean of numbers, such as losses weighted by the size of their batches. NaN if there
// are none.
class MeanMeter {
 public:
  void add(double value, double weight = 1);
  // Adds a tensor of one element. The sum stays on the tensor's device: value() waits for it, and
  // adding does not.
  void add(const Tensor& value, double weight = 1);
  double value() const;
  void reset() { *this = {}; }

 private:
  double sum_ = 0;
  double weight_ = 0;
  Tensor device_sum_;
};

// The fraction of examples whose target is among the k classes of highest score. NaN if there are
// none.
class TopKMeter {
 public:
  explicit TopKMeter(int64_t k);
  // Adds scores (n, classes) and int64 targets (n). Throws Error(kShape) for other shapes.
  void add(const Tensor& scores, const Tensor& targets);
  double value() const;
  int64_t count() const { return count_; }
  void reset();

 private:
  int64_t k_;
  int64_t count_ = 0;
  Tensor correct_;  // on the device of the scores
};

class AccuracyMeter : public TopKMeter {
 public:
  AccuracyMeter() : TopKMeter(1) {}
};

// Counts how often examples of each class are predicted as each class.
class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(int64_t classes);
  // Adds scores (n, classes) or predicted classes (n), and int64 targets (n). Throws Error(kShape)
  // for other shapes, and Error(kValue) for classes out of range.
  void add(const Tensor& predicted, const Tensor& targets);

  int64_t count(int64_t target, int64_t predicted) const;
  double accuracy() const;
  // NaN if no example is predicted as the class, or is of the class.
  double precision(int64_t of_class) const;
  double recall(int64_t of_class) const;
  // Returns int64 (classes, classes): rows are targets, columns are predictions.
  Tensor tensor() const;
  // Returns a table with a row per class: its counts, precision and recall.
  std::string str(const std::vector<std::string>& class_names = {}) const;
  void reset();

 private:
  void check_class(int64_t value) const;
  int64_t classes_;
  std::vector<int64_t> counts_;
};

}  // namespace mytorch::nn
