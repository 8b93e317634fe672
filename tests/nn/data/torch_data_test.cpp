// libtorch's names for loading data.
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "mytorch/data.h"
#include "mytorch/generator.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/rand.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::data {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::values;

// Example i is (i) with target i * i. It counts its calls without a lock, so that a copy which two
// threads use at once is a data race.
struct Squares : datasets::Dataset<Squares> {
  Example<> get(size_t index) override {
    ++calls;
    const auto i = static_cast<double>(index);
    return {full({1}, i), full({}, i * i)};
  }
  std::optional<size_t> size() const override { return 10; }
  int calls = 0;
};

// Returns the first number of each batch's rows.
template <class Loader>
std::vector<std::vector<double>> batches_of(Loader& loader) {
  std::vector<std::vector<double>> all;
  for (auto& batch : *loader) all.push_back(values(batch.data));
  return all;
}

TEST(MakeDataLoader, StacksTheExamplesInOrder) {
  auto loader =
      make_data_loader<samplers::SequentialSampler>(Squares().map(transforms::Stack<>()), 4);
  const std::vector<std::vector<double>> expected{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}};
  EXPECT_EQ(batches_of(loader), expected);
  EXPECT_EQ(batches_of(loader), expected);
  const Example<> first = *loader->begin();  // the iterator owns the batch
  EXPECT_EQ(values(first.target), (std::vector<double>{0, 1, 4, 9}));
}

TEST(MakeDataLoader, YieldsListsOfExamplesWithoutStack) {
  auto loader = make_data_loader<samplers::SequentialSampler>(Squares(), 4);
  std::vector<size_t> sizes;
  double sum = 0;
  for (std::vector<Example<>>& batch : *loader) {
    sizes.push_back(batch.size());
    for (auto& example : batch) sum += example.target.item<double>();
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{4, 4, 2}));
  EXPECT_EQ(sum, 285);
}

TEST(MakeDataLoader, ShufflesByDefaultAnewInEachEpoch) {
  manual_seed(1);
  auto loader = make_data_loader(Squares().map(transforms::Stack<>()), 10);
  const std::vector<double> a = batches_of(loader)[0], b = batches_of(loader)[0];
  EXPECT_NE(a, b);
  EXPECT_EQ(std::set<double>(a.begin(), a.end()).size(), 10u);
  manual_seed(1);
  auto again = make_data_loader(Squares().map(transforms::Stack<>()), 10);
  EXPECT_EQ(batches_of(again)[0], a);
  manual_seed(2);
  auto other = make_data_loader(Squares().map(transforms::Stack<>()), 10);
  EXPECT_NE(batches_of(other)[0], a);
}

TEST(MakeDataLoader, WorkersChangeNoBits) {
  const auto noise = [](Tensor x) { return x + rand({1}); };
  const auto epoch = [&](size_t workers) {
    manual_seed(7);
    auto loader = make_data_loader(
        Squares().map(transforms::TensorLambda<>(noise)).map(transforms::Stack<>()),
        DataLoaderOptions(3).workers(workers).max_jobs(5));
    return batches_of(loader);
  };
  EXPECT_EQ(epoch(3), epoch(0));
}

TEST(MakeDataLoader, TakesOptionsInBothSpellings) {
  DataLoaderOptions options;
  options.batch_size() = 4;
  options.drop_last() = true;
  options.workers(2).max_jobs(6);
  auto loader = make_data_loader(Squares().map(transforms::Stack<>()),
                                 samplers::SequentialSampler(10), options);
  EXPECT_EQ(batches_of(loader).size(), 2u);
  EXPECT_EQ(loader->options().num_workers, 2);
  EXPECT_EQ(loader->options().prefetch, 3);
}

struct Endless : datasets::Dataset<Endless> {
  Example<> get(size_t) override { return {zeros({1})}; }
  std::optional<size_t> size() const override { return std::nullopt; }
};

TEST(MakeDataLoader, RefusesDatasetsWithoutSizeAndNoBatches) {
  expect_error(ErrorCode::kUnsupported, {"no size"}, [] { make_data_loader(Endless(), 4); });
  expect_error(ErrorCode::kValue, {"batch_size"}, [] { make_data_loader(Squares(), 0); });
}

TEST(Map, AppliesTransformsInOrder) {
  auto dataset = Squares()
                     .map(transforms::Lambda<Example<>>([](Example<> example) {
                       example.target = example.target + 1;
                       return example;
                     }))
                     .map(transforms::TensorLambda<>([](Tensor x) { return x * 2; }));
  const Example<> example = dataset.get(3);
  EXPECT_EQ(example.data.item<double>(), 6);
  EXPECT_EQ(example.target.item<double>(), 10);
  EXPECT_EQ(dataset.size(), 10u);
  EXPECT_EQ(dataset.get_batch({1, 2}).size(), 2u);
}

TEST(Map, LeavesANamedDatasetUsable) {
  Squares squares;
  auto mapped = squares.map(transforms::TensorLambda<>([](Tensor x) { return x * 2; }));
  EXPECT_EQ(mapped.get(2).data.item<double>(), 4);
  EXPECT_EQ(squares.get(2).data.item<double>(), 2);
}

TEST(TensorDataset, HasTheRowsOfATensor) {
  datasets::TensorDataset dataset(arange(6).view({3, 2}));
  EXPECT_EQ(dataset.size(), 3u);
  EXPECT_EQ(values(dataset.get(1).data), (std::vector<double>{2, 3}));
  EXPECT_FALSE(dataset.get(1).target.defined());
}

TEST(Samplers, GiveAnEpochInBatches) {
  samplers::SequentialSampler sampler(5);
  EXPECT_EQ(sampler.next(3), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(sampler.next(3), (std::vector<size_t>{3, 4}));
  EXPECT_FALSE(sampler.next(3).has_value());
  sampler.reset(2);
  EXPECT_EQ(sampler.next(3), (std::vector<size_t>{0, 1}));
  samplers::RandomSampler random(100);
  const auto first = random.next(100);
  random.reset();
  EXPECT_NE(random.next(100), first);
}

}  // namespace
}  // namespace mytorch::data
