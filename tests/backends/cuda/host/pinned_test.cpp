// Pinned host memory and asynchronous copies.
#include <cstdint>
#include <vector>

#include "mytorch/cuda.h"
#include "mytorch/mytorch.h"
#include "tests/backends/cuda/gpu.h"

namespace mytorch::testing {
namespace {

class Pinned : public Gpu {};

TEST_F(Pinned, KeepsTheValues) {
  const Tensor x = arange(0, 1000, 1, kInt32, kCPU);
  const Tensor pinned = pin_memory(x);
  EXPECT_TRUE(pinned.device().is_cpu());
  EXPECT_TRUE(eq(pinned, x).all().item().to_bool());
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, pinned.raw_data()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(empty_pinned({0, 3}).numel(), 0);
}

// Tensors are freed and their memory is requested again while their copies are still queued.
TEST_F(Pinned, IsReusedOnlyAfterItsCopies) {
  const int64_t n = 1 << 20;
  const Tensor busy = ones({8 << 20}, kFloat32, "cuda");
  std::vector<Tensor> there;
  for (int i = 0; i < 30; ++i) {
    if (i % 10 == 0) {
      for (int k = 0; k < 30; ++k) busy.mul_(1);  // keeps the device busy for some milliseconds
    }
    const Tensor here = empty_pinned({n});
    here.fill_(i);
    there.push_back(here.to("cuda", {}, true));
  }
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(amin(there[static_cast<size_t>(i)]).item().to_double(), i);
    EXPECT_EQ(amax(there[static_cast<size_t>(i)]).item().to_double(), i);
  }
}

TEST_F(Pinned, IsReused) {
  const void* first = nullptr;
  {
    const Tensor x = empty_pinned({5000});
    first = x.raw_data();
    const Tensor y = x.to("cuda", {}, true);
    synchronize();
  }
  EXPECT_EQ(empty_pinned({4500}).raw_data(), first);
}

// Each replay reads the current values.
TEST_F(Pinned, IsReadByEachReplayOfAGraph) {
  const Tensor here = empty_pinned({4096});
  const Tensor back = empty_pinned({});
  Graph graph;
  graph.capture([&] {
    const Tensor total = sum(here.to("cuda", {}, true));
    back.copy_(total, true);
  });
  for (const double value : {1.0, 3.0}) {
    here.fill_(value);
    graph.replay();
    synchronize();
    EXPECT_EQ(back.item().to_double(), 4096 * value);
  }
}

}  // namespace
}  // namespace mytorch::testing
