// Datasets made of other datasets.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/nn/data/dataset.h"
#include "mytorch/std_function.h"

namespace mytorch::nn::data {

// A dataset held by pointer, made from a pointer or from a dataset given by value.
class DatasetRef {
 public:
  // Throws Error(kValue) for null.
  template <class D>
  requires(std::is_base_of_v<Dataset, D>) DatasetRef(std::shared_ptr<D> dataset)
      : DatasetRef(Checked{}, std::move(dataset)) {}  // NOLINT
  template <class D>
  requires(std::is_base_of_v<Dataset, D>)
      DatasetRef(D dataset)  // NOLINT(google-explicit-constructor)
      : DatasetRef(Checked{}, std::make_shared<const D>(std::move(dataset))) {}

  const Dataset& operator*() const { return *dataset_; }
  const Dataset* operator->() const { return dataset_.get(); }

 private:
  struct Checked {};
  DatasetRef(Checked, std::shared_ptr<const Dataset> dataset);
  std::shared_ptr<const Dataset> dataset_;
};

// The examples of a dataset at given indices, in that order.
class Subset final : public Dataset {
 public:
  // Throws Error(kValue) for an index out of range.
  Subset(DatasetRef dataset, std::vector<int64_t> indices);
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Example get(int64_t index) const override;
  Batch get_batch(IntList indices) const override;
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  DatasetRef dataset_;
  std::vector<int64_t> indices_;
};

// The size of a part of a split: a number of examples if it is an integer, a fraction of the
// dataset if it is a floating-point number.
class PartSize {
 public:
  PartSize(std::integral auto count)  // NOLINT(google-explicit-constructor)
      : count_(static_cast<int64_t>(count)) {}
  PartSize(std::floating_point auto fraction)  // NOLINT(google-explicit-constructor)
      : fraction_(static_cast<double>(fraction)), is_fraction_(true) {}
  bool is_fraction() const { return is_fraction_; }
  int64_t count() const { return count_; }
  double fraction() const { return fraction_; }

 private:
  int64_t count_ = 0;
  double fraction_ = 0;
  bool is_fraction_ = false;
};

// Splits a dataset at random into disjoint parts that cover it. The sizes are counts whose sum is
// the dataset's size, or fractions whose sum is 1; examples that remain after rounding down go to
// the first parts, one each. Throws Error(kValue) for other sizes.
//
//   const auto parts = random_split(dataset, {0.9, 0.1}, Generator(42));
std::vector<Subset> random_split(const DatasetRef& dataset, const std::vector<PartSize>& sizes,
                                 const Generator& generator = default_generator());

// The examples of several datasets, one dataset after the other.
class ConcatDataset final : public Dataset {
 public:
  // Throws Error(kValue) if there are no datasets, or too many examples.
  explicit ConcatDataset(std::vector<DatasetRef> datasets);
  int64_t size() const override { return ends_.back(); }
  Example get(int64_t index) const override;

 private:
  std::vector<DatasetRef> datasets_;
  std::vector<int64_t> ends_;  // number of examples up to and including each dataset
};

// Applies a function to each example of a dataset when it is loaded. Workers call the function from
// several threads. Random functions use operators without a generator argument, or the transforms
// of transforms.h: batches then consist of the same bits for any number of workers.
class MapDataset final : public Dataset {
 public:
  using Function = std::function<Example(Example)>;
  MapDataset(DatasetRef dataset, Function function);
  int64_t size() const override { return dataset_->size(); }
  Example get(int64_t index) const override;

 private:
  DatasetRef dataset_;
  Function function_;
};

// Maps a function of an example, or one from a tensor to a tensor, which is applied to `data`:
//
//   auto train = map(ImageFolder("train"), transforms::Compose{...});
template <class F>
MapDataset map(DatasetRef dataset, F function) {
  if constexpr (std::is_invocable_r_v<Example, const F&, Example>) {
    return MapDataset(std::move(dataset), std::move(function));
  } else {
    static_assert(std::is_invocable_r_v<Tensor, const F&, const Tensor&>,
                  "map takes a function from Example to Example, or from Tensor to Tensor");
    return MapDataset(std::move(dataset), [function = std::move(function)](Example example) {
      example.data = function(std::as_const(example.data));
      return example;
    });
  }
}

}  // namespace mytorch::nn::data
