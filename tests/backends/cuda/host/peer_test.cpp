// Several GPUs: computation on each, and copies between them. Skipped if there are fewer than two.
#include <cstdint>
#include <thread>
#include <vector>

#include "mytorch/ops/add.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/ops/view.h"
#include "mytorch/tensor.h"
#include "tests/backends/cuda/gpu.h"

namespace mytorch::testing {
namespace {

class Peers : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (IsSkipped()) return;
    int count = 0;
    ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
    if (count < 2) GTEST_SKIP() << "there is one GPU here";
  }
};

double total(const Tensor& x) { return sum(x.to(kFloat64)).item().to_double(); }

TEST_F(Peers, EachDeviceComputes) {
  for (const char* device : {"cuda:0", "cuda:1", "cuda:0"}) {
    const Tensor x = ones({300, 300}, kFloat32, device);
    EXPECT_EQ(x.device().str(), device);
    EXPECT_EQ(total(matmul(x, add(x, x))), 2.0 * 300 * 300 * 300);
  }
}

// Copies wait for the work queued on the source, without explicit synchronization.
TEST_F(Peers, CopiesAreOrdered) {
  const int64_t n = 32 << 20;
  Tensor x = ones({n}, kFloat32, "cuda:0");
  double expected = n;
  for (int i = 0; i < 20; ++i) {
    const char* other = i % 2 == 0 ? "cuda:1" : "cuda:0";
    x = add(x, 1);
    x = x.to(other);
    x = add(x, 1);
    expected += 2.0 * n;
  }
  EXPECT_EQ(total(x), expected);
}

TEST_F(Peers, StridedCopiesKeepTheirElements) {
  const Tensor x = arange(0, 6 * 7, 1, kInt64, "cuda:0").view({6, 7});
  const Tensor y = transpose(x, 0, 1).to("cuda:1").to(kFloat32).to(kCPU);
  for (int64_t i = 0; i < 7; ++i) {
    for (int64_t j = 0; j < 6; ++j) EXPECT_EQ(y[i][j].item().to_double(), j * 7 + i);
  }
}

TEST_F(Peers, ThreadsUseADeviceEach) {
  std::vector<double> totals(2);
  std::vector<std::thread> threads;
  for (int index = 0; index < 2; ++index) {
    threads.emplace_back([index, &totals] {
      Tensor x = ones({1 << 20}, kFloat32, Device(MT_DEVICE_CUDA, index));
      for (int i = 0; i < 200; ++i) x = add(x, 1);
      totals[static_cast<size_t>(index)] = total(x);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(totals, std::vector<double>(2, 201.0 * (1 << 20)));
}

}  // namespace
}  // namespace mytorch::testing
