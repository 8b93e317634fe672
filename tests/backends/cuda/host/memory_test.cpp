// Memory over many steps: what a step needed, the next ones use again.
#include <cstdint>
#include <random>
#include <vector>

#include "mytorch/ops/add.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/sum.h"
#include "mytorch/tensor.h"
#include "tests/backends/cuda/gpu.h"

namespace mytorch::testing {
namespace {

class Memory : public Gpu {
 protected:
  static size_t free_bytes() {
    size_t free = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return free;
  }
};

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
    if (step == 100) after_100 = free_bytes();
  }
  EXPECT_GE(free_bytes(), after_100);
}

// A tensor is freed while the device still reads it; what takes its place comes after, on the
// stream.
TEST_F(Memory, IsNotWrittenBeforeItWasRead) {
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
