// Several threads on graphs that share leaves, nodes and views.
#include <atomic>
#include <thread>

#include "mytorch/autograd.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/sum.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

constexpr int kThreads = 4;

template <class F>
void in_threads(F&& f) {
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
      f(t);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, GradientsOfSharedLeavesAddUp) {
  const Tensor w = leaf({1, 2});
  const Tensor v = leaf({3, 4});
  constexpr int kRounds = 50;
  in_threads([&](int t) {
    for (int i = 0; i < kRounds; ++i) {
      sum(mul(mul(w, v), static_cast<double>(t + 1))).backward();
    }
  });
  const double factor = kRounds * (1 + 2 + 3 + 4);
  EXPECT_EQ(values(w.grad()), (Values{3 * factor, 4 * factor}));
  EXPECT_EQ(values(v.grad()), (Values{1 * factor, 2 * factor}));
}

TEST(Threads, ASharedGraphRunsOnEveryThread) {
  const Tensor x = leaf({2});
  Tensor h = x;
  for (int i = 0; i < 50; ++i) h = mul(h, 1.0);
  const Tensor y = mul(h, h);
  constexpr int kRounds = 20;
  in_threads([&](int) {
    for (int i = 0; i < kRounds; ++i) {
      EXPECT_EQ(values(autograd::grad({y}, {x}, {}, {.retain_graph = true})[0]), (Values{4}));
      y.backward({}, true);
    }
  });
  EXPECT_EQ(values(x.grad()), (Values{4.0 * kThreads * kRounds}));
}

TEST(Threads, GraphsBuiltOnASharedPart) {
  const Tensor x = leaf({2});
  const Tensor shared = mul(x, 3.0);
  in_threads([&](int) {
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(values(autograd::grad({exp(mul(shared, 0.0))}, {x}, {}, {.retain_graph = true})[0]),
                (Values{0}));
    }
  });
  shared.backward();
}

// A view whose history must be rebuilt, read by all threads at once.
TEST(Threads, HistoriesOfViewsAreRebuiltOnce) {
  for (int round = 0; round < 20; ++round) {
    const Tensor w = leaf({2, 3});
    const Tensor base = plain({5, 7});
    const Tensor early = select(base, 0, 1);
    mul_(base, w);
    const Tensor late = select(base, 0, 0);
    mul_(base, 2.0);
    in_threads([&](int) {
      EXPECT_EQ(values(autograd::grad({add(early, late)}, {w}, {}, {.retain_graph = true})[0]),
                (Values{10, 14}));
    });
  }
}

TEST(Threads, GraphsDestroyedElsewhere) {
  const Tensor x = leaf({1});
  std::vector<Tensor> results(kThreads);
  in_threads([&](int t) {
    Tensor y = x;
    for (int i = 0; i < 1000; ++i) y = mul(y, 1.0);
    results[static_cast<size_t>(t)] = y;
  });
  for (Tensor& y : results) {
    y.backward();
    y = Tensor();
  }
  EXPECT_EQ(values(x.grad()), (Values{kThreads}));
  EXPECT_EQ(x.impl()->refs.load(), 1u);
}

TEST(Threads, GradModeIsPerThread) {
  NoGradGuard no_grad;
  const Tensor x = leaf({1});
  in_threads([&](int) { EXPECT_TRUE(mul(x, 2.0).requires_grad()); });
  EXPECT_FALSE(mul(x, 2.0).requires_grad());
}

}  // namespace
}  // namespace mytorch
