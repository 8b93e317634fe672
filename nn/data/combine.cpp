#include "mytorch/nn/data/combine.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/types/errors.h"
#include "nn/data/gather.h"
#include "nn/data/split_mix.h"

namespace mytorch::nn::data {

DatasetRef::DatasetRef(Checked, std::shared_ptr<const Dataset> dataset)
    : dataset_(std::move(dataset)) {
  if (dataset_ == nullptr) fail(ErrorCode::kValue, "[Dataset] the dataset is null: give one");
}

Subset::Subset(DatasetRef dataset, std::vector<int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {
  const int64_t size = dataset_->size();
  for (int64_t index : indices_) check_index("Subset", index, size);
}

Example Subset::get(int64_t index) const {
  check_index("Subset", index, size());
  return dataset_->get(indices_[static_cast<size_t>(index)]);
}

Batch Subset::get_batch(IntList indices) const {
  check_indices("Subset", indices, size());
  std::vector<int64_t> mapped;
  mapped.reserve(indices.size());
  for (int64_t index : indices) mapped.push_back(indices_[static_cast<size_t>(index)]);
  return dataset_->get_batch(mapped);
}

namespace {

std::vector<int64_t> part_counts(const std::vector<PartSize>& sizes, int64_t total) {
  const bool fractions = !sizes.empty() && sizes[0].is_fraction();
  std::vector<int64_t> counts;
  double sum = 0;
  int64_t used = 0;
  for (const PartSize& size : sizes) {
    if (size.is_fraction() != fractions) {
      fail(ErrorCode::kValue,
           "[random_split] the sizes mix counts and fractions: give integers or fractions only");
    }
    const double value = fractions ? size.fraction() : static_cast<double>(size.count());
    if (!(value >= 0) || value > (fractions ? 1.0 : static_cast<double>(total))) {
      fail(ErrorCode::kValue, "[random_split] size ", counts.size(), " is ", value,
           " for a dataset of ", total, " examples: give counts whose sum is ", total,
           ", or fractions whose sum is 1");
    }
    sum += value;
    counts.push_back(fractions
                         ? static_cast<int64_t>(std::floor(static_cast<double>(total) * value))
                         : size.count());
    used += counts.back();
  }
  if (fractions ? std::abs(sum - 1) > 1e-6 : used != total) {
    fail(ErrorCode::kValue, "[random_split] the sum of the sizes is ", sum, " for a dataset of ",
         total, " examples: give counts whose sum is ", total, ", or fractions whose sum is 1");
  }
  for (size_t i = 0; used < total; i = (i + 1) % counts.size(), ++used) ++counts[i];
  return counts;
}

}  // namespace

std::vector<Subset> random_split(const DatasetRef& dataset, const std::vector<PartSize>& sizes,
                                 const Generator& generator) {
  const std::vector<int64_t> counts = part_counts(sizes, dataset->size());
  std::vector<int64_t> order(static_cast<size_t>(dataset->size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  SplitMix64 random = drawn_from(generator);
  shuffle(order, random);
  std::vector<Subset> parts;
  auto begin = order.begin();
  for (int64_t count : counts) {
    parts.emplace_back(dataset, std::vector<int64_t>(begin, begin + count));
    begin += count;
  }
  return parts;
}

ConcatDataset::ConcatDataset(std::vector<DatasetRef> datasets) : datasets_(std::move(datasets)) {
  if (datasets_.empty()) fail(ErrorCode::kValue, "[ConcatDataset] there are no datasets: give one");
  int64_t end = 0;
  for (const DatasetRef& dataset : datasets_) {
    if (__builtin_add_overflow(end, dataset->size(), &end)) {
      fail(ErrorCode::kValue, "[ConcatDataset] the number of examples exceeds 2^63: give fewer");
    }
    ends_.push_back(end);
  }
}

Example ConcatDataset::get(int64_t index) const {
  check_index("ConcatDataset", index, size());
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  const int64_t begin = end == ends_.begin() ? 0 : *(end - 1);
  return datasets_[static_cast<size_t>(end - ends_.begin())]->get(index - begin);
}

MapDataset::MapDataset(DatasetRef dataset, Function function)
    : dataset_(std::move(dataset)), function_(std::move(function)) {
  if (function_ == nullptr) fail(ErrorCode::kValue, "[MapDataset] the function is empty: give one");
}

Example MapDataset::get(int64_t index) const {
  check_index("MapDataset", index, size());
  return function_(dataset_->get(index));
}

}  // namespace mytorch::nn::data
