// Call numbers of random operators.
#include "mytorch/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "mytorch/error.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/tensor.h"

namespace mytorch {
namespace {

TEST(GeneratorTest, TakesOneNumberForEachCall) {
  const Generator generator(42);
  EXPECT_EQ(generator.seed(), 42u);
  for (uint64_t i = 0; i < 3; ++i) {
    const mt_random random = generator.next();
    EXPECT_EQ(random.seed, 42u);
    EXPECT_EQ(random.call, i);
    EXPECT_EQ(random.call_on_device, nullptr);
  }
  EXPECT_EQ(generator.call(), 3u);
}

TEST(GeneratorTest, CopiesShareTheState) {
  Generator a(1);
  const Generator b = a;
  a.next();
  EXPECT_EQ(b.call(), 1u);
  b.next();
  EXPECT_EQ(a.call(), 2u);
  a.set_seed(9);
  EXPECT_EQ(b.seed(), 9u);
  EXPECT_EQ(b.call(), 0u);
  EXPECT_EQ(Generator(1).call(), 0u);
}

TEST(GeneratorTest, ContinuesFromACheckpoint) {
  Generator a(5);
  for (int i = 0; i < 10; ++i) a.next();
  Generator b(a.seed());
  b.set_call(a.call());
  EXPECT_EQ(b.next().call, a.next().call);
}

TEST(GeneratorTest, StateIsATensor) {
  Generator a(5);
  for (int i = 0; i < 3; ++i) a.next();
  const Tensor state = a.get_state();
  const mt_random expected = a.next();
  Generator b(0);
  b.set_state(state);
  const mt_random next = b.next();
  EXPECT_EQ(next.seed, expected.seed);
  EXPECT_EQ(next.call, expected.call);
  EXPECT_THROW(b.set_state({}), Error);
  EXPECT_THROW(b.set_state(narrow(state, 0, 0, 8)), Error);
  EXPECT_EQ(b.seed(), 5u);
}

TEST(GeneratorTest, ManualSeedSetsTheDefaultGenerator) {
  manual_seed(123);
  EXPECT_EQ(default_generator().seed(), 123u);
  EXPECT_EQ(default_generator().next().call, 0u);
  EXPECT_EQ(default_generator().next().call, 1u);
  manual_seed(0);
  EXPECT_EQ(default_generator().call(), 0u);
}

TEST(GeneratorTest, NoNumberIsTakenTwice) {
  const Generator generator(0);
  std::vector<std::vector<uint64_t>> taken(4);
  std::vector<std::thread> threads;
  for (auto& mine : taken) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) mine.push_back(generator.next().call);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<uint64_t> all;
  for (const auto& mine : taken) all.insert(all.end(), mine.begin(), mine.end());
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i);
}

}  // namespace
}  // namespace mytorch
