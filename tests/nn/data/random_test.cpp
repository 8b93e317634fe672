// Random augmentation: the same bits for any number of workers.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/nn/data/data_loader.h"
#include "mytorch/ops/rand.h"
#include "tests/nn/values.h"

namespace mytorch::nn::data {
namespace {

using mytorch::testing::values;

// Example i is random numbers, from an operator and from the standard library.
class Noise final : public Dataset {
 public:
  int64_t size() const override { return 23; }
  Example get(int64_t index) const override {
    std::mt19937_64 engine(default_generator().seed());
    return {rand({3}), tensor({static_cast<double>(index), static_cast<double>(engine() >> 44)})};
  }
};

// The same for a dataset that gathers whole batches.
class NoiseInBatches final : public Dataset {
 public:
  int64_t size() const override { return 23; }
  Example get(int64_t) const override { return {rand({3}), {}}; }
  Batch get_batch(IntList indices) const override {
    return {rand({static_cast<int64_t>(indices.size()), 3}), {}};
  }
};

template <class D>
std::vector<std::vector<double>> epochs(DataLoaderOptions options, int n = 2) {
  DataLoader loader(D(), std::move(options));
  std::vector<std::vector<double>> result;
  for (int e = 0; e < n; ++e) {
    result.emplace_back();
    for (const Batch& batch : loader) {
      for (const Tensor& tensor : {batch.data, batch.target}) {
        if (!tensor.defined()) continue;
        const std::vector<double> found = values(tensor);
        result.back().insert(result.back().end(), found.begin(), found.end());
      }
    }
  }
  return result;
}

template <class D>
void expect_independent_of_workers() {
  const auto alone = epochs<D>({.batch_size = 4, .shuffle = true, .seed = 7});
  EXPECT_NE(alone[0], alone[1]);
  for (int workers : {1, 2, 5}) {
    EXPECT_EQ(epochs<D>({.batch_size = 4, .shuffle = true, .seed = 7, .num_workers = workers}),
              alone)
        << workers << " workers";
  }
  EXPECT_NE(epochs<D>({.batch_size = 4, .shuffle = true, .seed = 8}), alone);
}

TEST(Augmentation, OfExamplesDoesNotDependOnTheWorkers) { expect_independent_of_workers<Noise>(); }

TEST(Augmentation, OfBatchesDoesNotDependOnTheWorkers) {
  expect_independent_of_workers<NoiseInBatches>();
}

TEST(Augmentation, DoesNotDependOnTheBatchSize) {
  const auto draw = [](int64_t size) {
    std::vector<double> drawn;
    DataLoader loader(Noise(), {.batch_size = size, .seed = 3});
    for (const Batch& batch : loader) {
      const std::vector<double> found = values(batch.data);
      drawn.insert(drawn.end(), found.begin(), found.end());
    }
    return drawn;
  };
  EXPECT_EQ(draw(1), draw(5));
}

TEST(Augmentation, LeavesTheGlobalGeneratorAlone) {
  manual_seed(5);
  epochs<Noise>({.batch_size = 4});
  EXPECT_EQ(default_generator().seed(), 5u);
  EXPECT_EQ(default_generator().call(), 0u);
  const auto outside = values(Noise().get(0).data);
  EXPECT_NE(outside, values(Noise().get(0).data));
}

TEST(GeneratorGuard, ReplacesTheDefaultOfTheThread) {
  manual_seed(1);
  {
    const GeneratorGuard outer(Generator(2));
    {
      const GeneratorGuard inner(Generator(3));
      EXPECT_EQ(default_generator().seed(), 3u);
      manual_seed(4);
      EXPECT_EQ(default_generator().seed(), 4u);
    }
    EXPECT_EQ(default_generator().seed(), 2u);
  }
  EXPECT_EQ(default_generator().seed(), 1u);
}

}  // namespace
}  // namespace mytorch::nn::data
