// The host memory pool: reuse of blocks and recovery from exhaustion.
#include "core/runtime/cpu_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "core/runtime/device_registry.h"
#include "core/runtime/host_memory.h"
#include "mytorch/tensor.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch {
namespace {

using testing::expect_error;

constexpr bool kPooled = cpu_pool::detail::kPooled;

struct Block {
  explicit Block(size_t bytes) : data(cpu_pool::allocate(bytes, &size_class)) {}
  void release() { cpu_pool::release(data, size_class); }
  uint16_t size_class = 0;
  void* data;
};

TEST(CpuPoolTest, BlocksAreAlignedAndLargeEnough) {
  std::vector<size_t> sizes;
  for (size_t power = 0; power <= 24; ++power) {
    for (size_t near : {size_t{1} << power, size_t{5} << power >> 2, size_t{7} << power >> 2}) {
      sizes.insert(sizes.end(), {near - 1, near, near + 1});
    }
  }
  std::vector<Block> blocks;
  for (size_t bytes : sizes) {
    blocks.emplace_back(bytes);
    ASSERT_NE(blocks.back().data, nullptr) << bytes;
    ASSERT_EQ(reinterpret_cast<uintptr_t>(blocks.back().data) % 64, 0u) << bytes;
    // Fill the block; a sanitizer or a neighbor's pattern reveals any overlap.
    std::memset(blocks.back().data, static_cast<int>(blocks.size() % 251), bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(blocks[i].data);
    const auto pattern = static_cast<unsigned char>((i + 1) % 251);
    ASSERT_TRUE(std::all_of(bytes, bytes + sizes[i], [&](unsigned char b) { return b == pattern; }))
        << sizes[i];
    blocks[i].release();
  }
}

TEST(CpuPoolTest, ReusesBlocksOfOneSize) {
  if (!kPooled) GTEST_SKIP() << "a sanitizer sees every block come and go";
  for (size_t bytes : {1, 64, 1000, 5000, 60000, 1 << 20, 9 << 20}) {
    Block first(bytes);
    void* const data = first.data;
    first.release();
    Block second(bytes);
    EXPECT_EQ(second.data, data) << bytes;
    second.release();
  }
}

TEST(CpuPoolTest, CountsLargeBlocks) {
  if (!kPooled) GTEST_SKIP() << "nothing is kept";
  cpu_pool::trim();
  const cpu_pool::CpuPoolStats before = cpu_pool::stats();
  EXPECT_EQ(before.large_cached, 0u);
  Block block(size_t{3} << 20);
  EXPECT_GE(cpu_pool::stats().large_in_use, before.large_in_use + (3u << 20));
  EXPECT_LE(cpu_pool::stats().large_in_use, before.large_in_use + (4u << 20));
  block.release();
  EXPECT_EQ(cpu_pool::stats().large_in_use, before.large_in_use);
  EXPECT_GE(cpu_pool::stats().large_cached, 3u << 20);
  cpu_pool::trim();
  EXPECT_EQ(cpu_pool::stats().large_cached, 0u);
}

TEST(CpuPoolTest, BlocksMoveBetweenThreads) {
  std::vector<Block> blocks;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 200; ++i) blocks.emplace_back(static_cast<size_t>(i * 397 % 70000));
    std::thread([&] {
      for (Block& block : blocks) block.release();
      blocks.clear();
      for (int i = 0; i < 100; ++i) blocks.emplace_back(static_cast<size_t>(i * 31));
    }).join();
    for (Block& block : blocks) block.release();
    blocks.clear();
  }
}

TEST(OutOfMemoryTest, ImpossibleSizesAreErrors) {
  const cpu_pool::CpuPoolStats before = cpu_pool::stats();
  auto make = [](const std::vector<int64_t>& sizes) {
    Tensor::adopt(new_tensor(sizes.data(), static_cast<int>(sizes.size()), kFloat32, kCPU, 0));
  };
  // 2^60 bytes, and products that overflow 64 bits to a small number and to 0.
  expect_error(ErrorCode::kOutOfMemory, {"cpu", "1152921504606846976 bytes"},
               [&] { make({int64_t{1} << 58}); });
  const int64_t big = int64_t{1} << 32;
  expect_error(ErrorCode::kShape, {"(4294967296, 4294967296, 2) has too many elements"}, [&] {
    make({big, big, 2});
  });
  expect_error(ErrorCode::kShape, {"too many"}, [&] { make({big, big + 1}); });
  expect_error(ErrorCode::kShape, {"too many"}, [&] { make({INT64_MAX}); });
  expect_error(ErrorCode::kShape, {"too many", "were its zeros ones"}, [&] {
    make({big, 0, big});
  });
  expect_error(ErrorCode::kShape, {"(3, -2)", "negative"}, [&] { make({3, -2}); });
  expect_error(ErrorCode::kShape, {"negative"}, [&] { make({0, -2}); });
  expect_error(ErrorCode::kShape, {"negative"}, [&] { make({-2, -2}); });
  expect_error(ErrorCode::kShape, {"too many"}, [&] {
    Tensor::adopt(new_tensor_strided({big, big}, {big, 1}, kFloat32, kCPU));
  });
  EXPECT_EQ(cpu_pool::stats().large_in_use, before.large_in_use);
  EXPECT_EQ(tensor({1.0, 2}).numel(), 2);
}

// The system grants somewhat more than the available memory, and ends the process that writes it.
TEST(OutOfMemoryTest, MoreThanTheAvailableMemoryIsAnError) {
  const auto available = static_cast<int64_t>(available_host_memory());
  ASSERT_GT(available, int64_t{1} << 20);
  const int64_t size = available + (int64_t{1} << 30);
  expect_error(ErrorCode::kOutOfMemory, {"cpu", " available)"},
               [&] { Tensor::adopt(new_tensor(&size, 1, kUInt8, kCPU, 0)); });
}

// Runs in a separate process with limited memory: existing tensors stay intact, and freed memory
// can be reused, also for other sizes.
[[maybe_unused]] int exhaust() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t limit = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (size_t{400} << 20);
  const rlimit limits{limit, limit};
  if (setrlimit(RLIMIT_AS, &limits) != 0) return 1;
  auto make = [](int64_t mebibytes) {
    const int64_t size = mebibytes << 18;
    Tensor x = Tensor::adopt(new_tensor(&size, 1, kFloat32, kCPU, 0));
    std::fill_n(x.data<float>(), 1000, static_cast<float>(mebibytes));
    return x;
  };
  std::vector<Tensor> all;
  try {
    while (all.size() < 100) all.push_back(make(32));
    return 2;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) return 3;
    if (std::string(error.what()).find("33554432 bytes") == std::string::npos) return 4;
  }
  if (all.size() < 4) return 5;
  for (const Tensor& x : all) {
    if (x.const_data<float>()[999] != 32) return 6;
  }
  if (tensor({1.0, 2}).numel() != 2) return 7;
  all.clear();
  try {
    make(200);  // requires releasing the cached blocks of 32 MiB
  } catch (const Error&) {
    return 8;
  }
  return 0;
}

TEST(OutOfMemoryTest, KeepsAllTensorsIntact) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space without limit";
#else
  const pid_t child = fork();
  if (child == 0) _exit(exhaust());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
#endif
}

}  // namespace
}  // namespace mytorch
