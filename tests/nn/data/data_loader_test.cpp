#include "mytorch/nn/data/data_loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/threads.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch::nn::data {
namespace {

using mytorch::testing::expect_error;

// Example i is the number i. Records the requests, and can be set to fail or to be slow.
class Numbers final : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Example get(int64_t index) const override { return {tensor(std::vector<int64_t>{index}), {}}; }
  Batch get_batch(IntList indices) const override {
    ++batches_asked;
    if (grad_enabled()) ++with_grad;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      threads.insert(std::this_thread::get_id());
      most_threads = std::max(most_threads, num_threads());
    }
    // Earlier batches take longer, so that workers finish out of order.
    if (slow) std::this_thread::sleep_for(std::chrono::microseconds(300 * (indices[0] % 4)));
    for (int64_t index : indices) {
      if (index == fail_at) throw std::runtime_error("example " + std::to_string(index));
    }
    return {tensor(indices.vec()), {}};
  }

  int64_t fail_at = -1;
  bool slow = false;
  mutable std::atomic<int> batches_asked{0};
  mutable std::atomic<int> with_grad{0};
  mutable std::set<std::thread::id> threads;
  mutable int most_threads = 0;

 private:
  int64_t size_;
  mutable std::mutex mutex_;
};

using Batches = std::vector<std::vector<int64_t>>;

std::vector<int64_t> numbers(const Batch& batch) {
  const int64_t* data = batch.data.const_data<int64_t>();
  return {data, data + batch.data.numel()};
}

Batches epoch(DataLoader& loader) {
  Batches batches;
  for (const Batch& batch : loader) batches.push_back(numbers(batch));
  return batches;
}

class DataLoaderTest : public ::testing::TestWithParam<int> {
 protected:
  DataLoaderOptions options(int64_t batch_size) const {
    return {.batch_size = batch_size, .num_workers = GetParam()};
  }
};
INSTANTIATE_TEST_SUITE_P(Workers, DataLoaderTest, ::testing::Values(0, 1, 2, 5));

TEST_P(DataLoaderTest, WalksInOrder) {
  const auto dataset = std::make_shared<Numbers>(7);
  dataset->slow = true;
  DataLoader loader(dataset, options(3));
  EXPECT_EQ(loader.size(), 3);
  const Batches expected{{0, 1, 2}, {3, 4, 5}, {6}};
  EXPECT_EQ(epoch(loader), expected);
  EXPECT_EQ(epoch(loader), expected);
}

TEST_P(DataLoaderTest, DropsTheLastBatchOnlyWhenItIsSmaller) {
  for (int64_t size : {6, 7, 8}) {
    DataLoaderOptions dropping = options(3);
    dropping.drop_last = true;
    DataLoader loader(std::make_shared<Numbers>(size), dropping);
    EXPECT_EQ(loader.size(), 2);
    EXPECT_EQ(epoch(loader), (Batches{{0, 1, 2}, {3, 4, 5}}));
  }
}

TEST_P(DataLoaderTest, TakesNoExamplesAndBatchesLargerThanTheData) {
  DataLoader none(std::make_shared<Numbers>(0), options(3));
  EXPECT_EQ(none.size(), 0);
  EXPECT_TRUE(none.begin() == none.end());
  DataLoader one(std::make_shared<Numbers>(2), options(INT64_MAX));
  EXPECT_EQ(epoch(one), (Batches{{0, 1}}));
}

TEST_P(DataLoaderTest, ShufflesEachEpochByTheSeedAlone) {
  DataLoaderOptions shuffling = options(5);
  shuffling.shuffle = true;
  shuffling.seed = 17;
  const auto dataset = std::make_shared<Numbers>(23);
  dataset->slow = true;
  DataLoader loader(dataset, shuffling);
  const RandomSampler sampler(23, 17);
  for (uint64_t e = 0; e < 3; ++e) {
    EXPECT_EQ(loader.epoch(), e);
    std::vector<int64_t> flat;
    for (const auto& batch : epoch(loader)) flat.insert(flat.end(), batch.begin(), batch.end());
    EXPECT_EQ(flat, sampler.indices(e));
  }
  loader.set_epoch(1);
  EXPECT_EQ(epoch(loader)[0][0], sampler.indices(1)[0]);
  EXPECT_EQ(loader.epoch(), 2u);
}

TEST_P(DataLoaderTest, RethrowsAtTheBatchThatFailed) {
  const auto dataset = std::make_shared<Numbers>(100);
  dataset->fail_at = 31;
  dataset->slow = true;
  DataLoader loader(dataset, options(10));
  Batches seen;
  try {
    for (const Batch& batch : loader) seen.push_back(numbers(batch));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "example 31");
  }
  EXPECT_EQ(seen.size(), 3u);
  dataset->fail_at = -1;
  EXPECT_EQ(epoch(loader).size(), 10u);  // the loader remains usable
}

TEST_P(DataLoaderTest, EndsTheEpochAfterAnError) {
  const auto dataset = std::make_shared<Numbers>(100);
  dataset->fail_at = 10;
  DataLoader loader(dataset, options(10));
  auto it = loader.begin();
  EXPECT_THROW(++it, std::runtime_error);
  EXPECT_TRUE(it == loader.end());
  ++it;
  EXPECT_TRUE(it == loader.end());
}

TEST_P(DataLoaderTest, RethrowsFromBegin) {
  const auto dataset = std::make_shared<Numbers>(100);
  dataset->fail_at = 0;
  DataLoader loader(dataset, options(1));
  EXPECT_THROW(loader.begin(), std::runtime_error);
}

TEST_P(DataLoaderTest, CanBeLeftEarly) {
  const auto dataset = std::make_shared<Numbers>(1000);
  DataLoader loader(dataset, options(1));
  for (const Batch& batch : loader) {
    if (numbers(batch)[0] == 3) break;
  }
  EXPECT_LE(dataset->batches_asked, 4 + 2 * GetParam());
}

TEST_P(DataLoaderTest, PreparesABoundedNumberAhead) {
  const auto dataset = std::make_shared<Numbers>(1000);
  DataLoaderOptions bounded = options(1);
  bounded.prefetch = 3;
  DataLoader loader(dataset, bounded);
  const auto it = loader.begin();
  const int most = 1 + 3 * GetParam();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (dataset->batches_asked < most && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(dataset->batches_asked, most);  // the workers do run ahead,
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(dataset->batches_asked, most);  // and no further
}

TEST_P(DataLoaderTest, IteratorOutlivesLoaderAndDataset) {
  auto loader = std::make_unique<DataLoader>(std::make_shared<Numbers>(6), options(2));
  auto it = loader->begin();
  loader.reset();
  ++it;
  EXPECT_EQ(numbers(*it), (std::vector<int64_t>{2, 3}));
}

TEST_P(DataLoaderTest, HasIndependentWalks) {
  DataLoader loader(std::make_shared<Numbers>(6), options(2));
  auto a = loader.begin();
  auto b = loader.begin();
  ++a;
  EXPECT_EQ(numbers(*a), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(numbers(*b), (std::vector<int64_t>{0, 1}));
  ++a;
  ++b;
  EXPECT_EQ(numbers(*a), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(numbers(*b), (std::vector<int64_t>{2, 3}));
}

TEST_P(DataLoaderTest, KeepsABatchThatTheCallerCopied) {
  DataLoader loader(std::make_shared<Numbers>(6), options(2));
  auto it = loader.begin();
  const Batch kept = *it;
  ++it;
  EXPECT_EQ(numbers(kept), (std::vector<int64_t>{0, 1}));
}

TEST_P(DataLoaderTest, RecordsNoGradientsAndRunsWorkersOnOneThread) {
  const auto dataset = std::make_shared<Numbers>(50);
  DataLoader loader(dataset, options(1));
  epoch(loader);
  EXPECT_EQ(dataset->with_grad, 0);
  EXPECT_TRUE(grad_enabled());
  EXPECT_EQ(dataset->threads.count(std::this_thread::get_id()), GetParam() == 0 ? 1u : 0u);
  EXPECT_LE(static_cast<int>(dataset->threads.size()), std::max(GetParam(), 1));
  if (GetParam() > 0) {
    EXPECT_EQ(dataset->most_threads, 1);
  }
}

TEST(DataLoaderOptionsTest, RejectsInvalidOptions) {
  const auto dataset = std::make_shared<Numbers>(3);
  const auto expect_refused = [&](DataLoaderOptions options, const std::string& part) {
    expect_error(ErrorCode::kValue, {"[DataLoader]", part}, [&] { DataLoader(dataset, options); });
  };
  expect_refused({.batch_size = 0}, "batch_size 0");
  expect_refused({.batch_size = -1}, "batch_size -1");
  expect_refused({.num_workers = -1}, "num_workers -1");
  expect_refused({.num_workers = 1 << 30}, "num_workers");
  expect_refused({.prefetch = 0}, "prefetch 0");
  expect_refused({.shuffle = true, .sampler = std::make_shared<SequentialSampler>(3)}, "sampler");
  expect_error(ErrorCode::kValue, {"no dataset"},
               [] { DataLoader(std::shared_ptr<const Dataset>()); });
}

TEST(DataLoaderOptionsTest, TakesASamplerAndADatasetByValue) {
  class Backwards final : public Sampler {
   public:
    int64_t size() const override { return 2; }
    std::vector<int64_t> indices(uint64_t) const override { return {2, 1}; }
  };
  DataLoader loader(TensorDataset(tensor(std::vector<int64_t>{10, 11, 12})),
                    {.batch_size = 2, .sampler = std::make_shared<Backwards>()});
  EXPECT_EQ(epoch(loader), (Batches{{12, 11}}));
}

TEST(DataLoaderOptionsTest, RejectsSamplersOfTheWrongSize) {
  class Wrong final : public Sampler {
   public:
    int64_t size() const override { return 3; }
    std::vector<int64_t> indices(uint64_t) const override { return {0}; }
  };
  DataLoader loader(std::make_shared<Numbers>(3), {.sampler = std::make_shared<Wrong>()});
  expect_error(ErrorCode::kValue, {"gave 1 indices", "3"}, [&] { loader.begin(); });
}

TEST(DataLoaderOptionsTest, DereferencingTheEndIsAnError) {
  DataLoader loader(std::make_shared<Numbers>(1), {});
  auto it = loader.begin();
  ++it;
  expect_error(ErrorCode::kValue, {"ended"}, [&] { *it; });
}

}  // namespace
}  // namespace mytorch::nn::data
