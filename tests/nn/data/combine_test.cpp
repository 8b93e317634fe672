#include "mytorch/nn/data/combine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "mytorch/nn/data/data_loader.h"
#include "mytorch/ops/rand.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn::data {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::values;

Tensor numbers(int64_t begin, int64_t end) {
  std::vector<int64_t> list;
  for (int64_t i = begin; i < end; ++i) list.push_back(i);
  return tensor(list);
}

std::vector<double> all_data(DataLoader& loader) {
  std::vector<double> all;
  for (const Batch& batch : loader) {
    const std::vector<double> found = values(batch.data);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

TEST(Example, HoldsAnyNumberOfTensors) {
  const TensorDataset dataset(numbers(0, 4), numbers(10, 14), numbers(20, 24), numbers(30, 34));
  const Batch batch = dataset.get_batch({2, 0});
  EXPECT_EQ(batch.num_tensors(), 4u);
  const auto& [data, target] = batch;
  expect_values(data, {2, 0});
  expect_values(target, {12, 10});
  const auto [a, b, c, d] = batch.all<4>();
  expect_values(a, {2, 0});
  expect_values(c, {22, 20});
  expect_values(d, {32, 30});
  expect_values(dataset.get(1)[3], {31});
  expect_error(ErrorCode::kValue, {"all<3>", "4 tensors", "all<4>"}, [&] { batch.all<3>(); });
  expect_error(ErrorCode::kValue, {"no tensor 4 among 4"}, [&] { batch[4]; });
  EXPECT_EQ(Batch(numbers(0, 3)).num_tensors(), 1u);
}

TEST(Example, TensorsMustHaveOneLength) {
  expect_error(ErrorCode::kShape, {"[TensorDataset]", "tensor 2", "4 and 3"},
               [] { TensorDataset(numbers(0, 4), numbers(0, 4), numbers(0, 3)); });
}

TEST(Subset, YieldsTheChosenExamplesInOrder) {
  const Subset subset(TensorDataset(numbers(10, 20)), {7, 2, 2});
  EXPECT_EQ(subset.size(), 3);
  expect_values(subset.get(0).data, {17});
  expect_values(subset.get_batch({2, 0, 1}).data, {12, 17, 12});
  expect_error(ErrorCode::kValue, {"[Subset]", "10"},
               [] { Subset(TensorDataset(numbers(0, 10)), {10}); });
  expect_error(ErrorCode::kValue, {"[Subset]", "3"}, [&] { subset.get(3); });
}

TEST(RandomSplit, PartsAreDisjointAndCoverTheData) {
  const auto dataset = std::make_shared<TensorDataset>(numbers(0, 100));
  const auto parts = random_split(dataset, {0.7, 0.2, 0.1}, Generator(3));
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].size(), 70);
  EXPECT_EQ(parts[1].size(), 20);
  EXPECT_EQ(parts[2].size(), 10);
  std::set<int64_t> seen;
  for (const Subset& part : parts) seen.insert(part.indices().begin(), part.indices().end());
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_FALSE(std::is_sorted(parts[0].indices().begin(), parts[0].indices().end()));
  EXPECT_EQ(random_split(dataset, {0.7, 0.3}, Generator(3))[0].indices(), parts[0].indices());
  EXPECT_NE(random_split(dataset, {70, 30}, Generator(4))[0].indices(), parts[0].indices());
}

TEST(RandomSplit, GivesTheRemainderToTheFirstParts) {
  const auto dataset = std::make_shared<TensorDataset>(numbers(0, 10));
  const auto parts = random_split(dataset, {0.25, 0.25, 0.5});
  EXPECT_EQ(parts[0].size(), 3);
  EXPECT_EQ(parts[1].size(), 2);
  EXPECT_EQ(parts[2].size(), 5);
}

TEST(RandomSplit, RefusesOtherSizes) {
  const auto dataset = std::make_shared<TensorDataset>(numbers(0, 10));
  const auto expect_refused = [&](std::vector<PartSize> sizes) {
    expect_error(ErrorCode::kValue, {"[random_split]"}, [&] { random_split(dataset, sizes); });
  };
  expect_refused({5, 4});
  expect_refused({-1, 11});
  expect_refused({0.5, 0.4});
  expect_refused({0.5, 5});
  expect_refused({0.0 / 0.0, 1.0});
  expect_refused({INT64_MAX, INT64_MAX});
  expect_refused({});
}

TEST(ConcatDataset, JoinsDatasets) {
  const ConcatDataset all({TensorDataset(numbers(0, 3)), TensorDataset(numbers(0, 0)),
                           Subset(TensorDataset(numbers(10, 20)), {9, 8})});
  EXPECT_EQ(all.size(), 5);
  expect_values(all.get_batch({0, 2, 3, 4}).data, {0, 2, 19, 18});
  expect_error(ErrorCode::kValue, {"[ConcatDataset]", "5"}, [&] { all.get(5); });
  expect_error(ErrorCode::kValue, {"[ConcatDataset]"}, [] { ConcatDataset({}); });
}

TEST(MapDataset, AppliesAFunctionOfATensorOrOfAnExample) {
  const TensorDataset numbers_of(numbers(0, 5), numbers(5, 10));
  const auto doubled = map(numbers_of, [](const Tensor& x) { return x * 2; });
  expect_values(doubled.get_batch({1, 4}).data, {2, 8});
  expect_values(doubled.get_batch({1, 4}).target, {6, 9});
  const auto swapped = map(doubled, [](Example e) { return Example{e.target, e.data}; });
  expect_values(swapped.get_batch({1, 4}).data, {6, 9});
  expect_error(ErrorCode::kValue, {"null"}, [] { Subset(std::shared_ptr<Dataset>(), {}); });
}

TEST(MapDataset, RandomFunctionsGiveTheSameBitsForAnyNumberOfWorkers) {
  const auto noisy = std::make_shared<MapDataset>(
      map(TensorDataset(numbers(0, 31)), [](const Tensor& x) { return x + rand({}); }));
  const auto run = [&](int workers, Collate collate) {
    DataLoader loader(noisy, {.batch_size = 4,
                              .shuffle = true,
                              .seed = 5,
                              .num_workers = workers,
                              .collate = std::move(collate)});
    auto two = all_data(loader);
    const auto second = all_data(loader);
    two.insert(two.end(), second.begin(), second.end());
    return two;
  };
  const auto alone = run(0, nullptr);
  EXPECT_EQ(run(3, nullptr), alone);
  const auto stack = [](const std::vector<Example>& examples) { return stack_examples(examples); };
  EXPECT_EQ(run(2, stack), alone);
}

TEST(MapDataset, RepeatedExamplesAreAugmentedDifferently) {
  DataLoader loader(
      map(TensorDataset(numbers(0, 1)), [](const Tensor& x) { return x + rand({}); }),
      {.batch_size = 2, .sampler = std::make_shared<WeightedRandomSampler>(std::vector{1.0}, 4)});
  const auto all = all_data(loader);
  EXPECT_EQ(std::set<double>(all.begin(), all.end()).size(), 4u);
}

TEST(Collate, PadsSequencesOfDifferentLengths) {
  class Sequences final : public Dataset {
   public:
    int64_t size() const override { return 3; }
    Example get(int64_t index) const override {
      return {numbers(1, index + 2), tensor(std::vector<int64_t>{index})};
    }
  };
  DataLoader loader(Sequences(), {.batch_size = 3, .collate = pad_examples(-1)});
  for (const Batch& batch : loader) {
    const auto [tokens, targets, lengths] = batch.all<3>();
    EXPECT_EQ(tokens.sizes(), (IntList{3, 3}));
    expect_values(tokens, {1, -1, -1, 1, 2, -1, 1, 2, 3});
    expect_values(targets, {0, 1, 2});
    expect_values(lengths, {1, 2, 3});
  }
  expect_error(ErrorCode::kShape, {"[pad_sequence]", "(2,)", "(1, 2)"}, [] {
    pad_sequence({numbers(0, 2), numbers(0, 2).view({1, 2})});
  });
  expect_error(ErrorCode::kShape, {"[pad_sequence]"}, [] { pad_sequence({numbers(0, 1)[0]}); });
  expect_error(ErrorCode::kType, {"[pad_sequence]", "int64", "float32"}, [] {
    pad_sequence({numbers(0, 1), numbers(0, 1).to(kFloat32)});
  });
  expect_error(ErrorCode::kValue, {"[pad_sequence]"}, [] { pad_sequence({}); });
  expect_error(ErrorCode::kValue, {"examples 0 and 1", "1 and 2"}, [] {
    stack_examples({{numbers(0, 1)}, {numbers(0, 1), numbers(0, 1)}});
  });
}

TEST(WeightedRandomSampler, DrawsInProportionToTheWeights) {
  const WeightedRandomSampler sampler({1, 0, 3, 0}, 40000, true, 7);
  std::map<int64_t, int> counts;
  for (int64_t index : sampler.indices(0)) ++counts[index];
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_NEAR(counts[2], 30000, 500);
  EXPECT_EQ(sampler.indices(1), sampler.indices(1));
  EXPECT_NE(sampler.indices(0), sampler.indices(1));
}

TEST(WeightedRandomSampler, WithoutReplacementRepeatsNoIndex) {
  const WeightedRandomSampler sampler({5, 0, 1, 1, 1}, 2, false, 7);
  int first = 0;
  for (uint64_t epoch = 0; epoch < 4000; ++epoch) {
    const auto indices = sampler.indices(epoch);
    ASSERT_EQ(indices.size(), 2u);
    ASSERT_NE(indices[0], indices[1]);
    ASSERT_TRUE(indices[0] != 1 && indices[1] != 1);
    first += indices[0] == 0 ? 1 : 0;
  }
  EXPECT_NEAR(first, 4000 * 5 / 8, 120);  // the first draw follows the weights
}

TEST(WeightedRandomSampler, RefusesInvalidWeights) {
  const auto expect_refused = [](std::vector<double> weights, int64_t n, bool replacement) {
    expect_error(ErrorCode::kValue, {"[WeightedRandomSampler]"},
                 [&] { WeightedRandomSampler(weights, n, replacement); });
  };
  expect_refused({}, 1, true);
  expect_refused({0, 0}, 1, true);
  expect_refused({1, -1}, 1, true);
  expect_refused({1, 1.0 / 0.0}, 1, true);
  expect_refused({1, 0}, 2, false);
  expect_refused({1, 1}, -1, true);
}

class PositionTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, PositionTest, ::testing::Values(0, 1, 3));

TEST_P(PositionTest, ResumesInTheMiddleOfAnEpoch) {
  const auto noisy = std::make_shared<MapDataset>(
      map(TensorDataset(numbers(0, 20)), [](const Tensor& x) { return x + rand({}); }));
  const DataLoaderOptions options{
      .batch_size = 3, .shuffle = true, .seed = UINT64_MAX, .num_workers = GetParam()};
  DataLoader loader(noisy, options);
  EXPECT_EQ(loader.position(), DataPosition{});
  all_data(loader);
  EXPECT_EQ(loader.position(), (DataPosition{1, 0}));
  TensorMap state;
  std::vector<double> rest;
  int seen = 0;
  for (const Batch& batch : loader) {
    if (++seen == 4) {
      EXPECT_EQ(loader.position(), (DataPosition{1, 4}));
      state = loader.state_dict();
    } else if (seen > 4) {
      const auto found = values(batch.data);
      rest.insert(rest.end(), found.begin(), found.end());
    }
  }
  const auto next = all_data(loader);
  DataLoader resumed(noisy, options);
  resumed.load_state_dict(state);
  EXPECT_EQ(resumed.epoch(), 1u);
  EXPECT_EQ(all_data(resumed), rest);
  EXPECT_EQ(all_data(resumed), next);
}

TEST_P(PositionTest, AtTheLastBatchNoneIsLeft) {
  DataLoader loader(TensorDataset(numbers(0, 4)), {.batch_size = 2, .num_workers = GetParam()});
  loader.set_position({3, 2});
  EXPECT_TRUE(loader.begin() == loader.end());
  EXPECT_EQ(loader.epoch(), 4u);
}

TEST(Position, RefusesTheStateOfAnotherOrder) {
  DataLoader loader(TensorDataset(numbers(0, 4)), {.batch_size = 2, .seed = 1});
  DataLoader other(TensorDataset(numbers(0, 4)), {.batch_size = 2, .seed = 2});
  expect_error(ErrorCode::kValue, {"[DataLoader]", "seed 1", "has 2"},
               [&] { other.load_state_dict(loader.state_dict()); });
  expect_error(ErrorCode::kValue, {"[DataLoader]", "'seed'"}, [&] { other.load_state_dict({}); });
  expect_error(ErrorCode::kValue, {"batch 3", "0 to 2"}, [&] { other.set_position({0, 3}); });
}

}  // namespace
}  // namespace mytorch::nn::data
