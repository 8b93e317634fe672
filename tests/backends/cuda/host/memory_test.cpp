// Memory over many steps: later steps reuse the memory of earlier ones.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "mytorch/cuda.h"
#include "mytorch/mytorch.h"
#include "tests/backends/cuda/gpu.h"

namespace mytorch::testing {
namespace {

// The free memory of the GPU says little: other processes use it, too.
class Memory : public Gpu {};

TEST_F(Memory, DoesNotGrowWithStepsOfChangingSizes) {
  std::mt19937 random(3);
  size_t after_100 = 0;
  for (int step = 0; step < 1000; ++step) {
    const int64_t batch = step == 50 ? 64 : 1 + static_cast<int64_t>(random() % 64);
    std::vector<Tensor> kept;
    for (const int64_t width : {10, 300, 1024, 5000, 40000, 100000, 784, 33}) {
      kept.push_back(empty({batch, width}, kFloat32, "cuda").fill_(1));
      kept.push_back(add(kept.back(), kept.back()));
      if (step % 3 == 0) kept.erase(kept.begin());
    }
    if (step == 100) after_100 = memory_stats().reserved;
  }
  EXPECT_LE(memory_stats().reserved, after_100);
}

// Tests the same for training: forward, backward, optimizer.
TEST_F(Memory, DoesNotGrowWithTrainingStepsOfChangingSizes) {
  manual_seed(1);
  empty_cache();
  nn::Sequential model(nn::Conv2d(3, 16, 3, {.padding = 1}), nn::ReLU(), nn::MaxPool2d(2),
                       nn::Flatten(), nn::Linear(16 * 64, 100), nn::Dropout(0.2), nn::ReLU(),
                       nn::Linear(100, 10));
  model.to("cuda");
  nn::optim::AdamW optimizer(model.parameters());
  std::mt19937 random(3);
  MemoryStats after_100;
  for (int step = 0; step < 1000; ++step) {
    const int64_t batch = step == 50 ? 128 : 8 + 8 * static_cast<int64_t>(random() % 16);
    const Tensor x = rand({batch, 3, 16, 16}, kFloat32, "cuda");
    const Tensor y = randint(10, {batch}, kInt64, "cuda");
    optimizer.zero_grad();
    cross_entropy(model(x), y).backward();
    optimizer.step();
    if (step == 100) after_100 = memory_stats();
  }
  const MemoryStats end = memory_stats();
  std::printf(
      "after 1000 steps: %.1f MiB reserved (%.1f after 100), %.0f %% of what is free in pieces\n%s",
      static_cast<double>(end.reserved) / (1 << 20),
      static_cast<double>(after_100.reserved) / (1 << 20), 100 * end.fragmentation(),
      memory_summary().c_str());
  EXPECT_LE(end.reserved, after_100.reserved);
  EXPECT_GT(end.allocated_peak, end.allocated);
}

TEST_F(Memory, StatisticsCountAllocations) {
  if (std::getenv("MYTORCH_CUDA_ALLOC") != nullptr) GTEST_SKIP() << "tests the default allocator";
  empty_cache();
  reset_peak_memory();
  const MemoryStats before = memory_stats();
  {
    const Tensor x = empty({64 << 20}, kUInt8, "cuda");
    const MemoryStats with = memory_stats();
    EXPECT_EQ(with.allocated, before.allocated + (64 << 20));
    EXPECT_GE(with.reserved, before.reserved + (64 << 20));
    EXPECT_EQ(with.blocks, before.blocks + 1);
  }
  const MemoryStats after = memory_stats();
  EXPECT_EQ(after.allocated, before.allocated);
  EXPECT_GE(after.allocated_peak, before.allocated + (64 << 20));
  EXPECT_GE(after.largest_free, size_t{64} << 20);
  empty_cache();
  EXPECT_LT(memory_stats().reserved, after.reserved);
  EXPECT_NE(cuda::memory_summary().find("fragmented"), std::string::npos);
  EXPECT_THROW(memory_stats(kCPU), Error);
}

// The allocator returns cached memory before it throws, and the error reports the memory in use.
void returns_cached_memory() {
  const int64_t part = int64_t{1600} << 20;
  { const Tensor cached = empty({part}, kUInt8, "cuda"); }
  { const Tensor other = empty({part + (int64_t{256} << 20)}, kUInt8, "cuda"); }
  const uint64_t retries = memory_stats().retries;
  { const Tensor large = empty({2 * part}, kUInt8, "cuda"); }
  EXPECT_EQ(memory_stats().retries, retries + 1);
  const Tensor held = empty({part}, kUInt8, "cuda");
  try {
    empty({2 * part}, kUInt8, "cuda");
    FAIL() << "more than the limit";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("MiB in use in"), std::string::npos) << error.what();
  }
}

// With a limit, since other processes may use the GPU at the same time. The allocator reads it
// once.
TEST_F(Memory, CachedMemoryIsReturnedBeforeAllocationFails) {
  const std::string limit = "limit=4096";
  const char* given = std::getenv("MYTORCH_CUDA_ALLOC");
  if (given != nullptr && given != limit) GTEST_SKIP() << "tests the default allocator";
  setenv("MYTORCH_CUDA_ALLOC", limit.c_str(), 1);
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        returns_cached_memory();
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
  unsetenv("MYTORCH_CUDA_ALLOC");
}

// A tensor is freed while the device still reads it. Work that reuses its memory is queued later on
// the same stream.
TEST_F(Memory, IsReusedOnlyAfterQueuedReads) {
  const int64_t n = 16 << 20;
  Tensor total = empty({}, kFloat64, "cuda").fill_(0);
  for (int i = 1; i <= 50; ++i) {
    const Tensor x = empty({n}, kFloat32, "cuda").fill_(i);
    total = add(total, sum(x, {0}, false, kFloat64));
  }
  EXPECT_EQ(total.item().to_double(), 50.0 * 51 / 2 * n);
}

}  // namespace
}  // namespace mytorch::testing
