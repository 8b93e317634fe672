// Hooks and retained gradients.
#include <cstdio>
#include <cstdlib>

#include "mytorch/autograd.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/sum.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

TEST(Hook, SeesAndReplacesTheGradient) {
  const Tensor x = leaf({1, 2});
  const Tensor h = mul(x, 2.0);
  Values seen;
  h.register_hook([&](const Tensor& g) {
    seen = values(g);
    return mul(g, 10.0);
  });
  sum(mul(h, 3.0)).backward();
  EXPECT_EQ(seen, (Values{3, 3}));
  EXPECT_EQ(values(x.grad()), (Values{60, 60}));
}

TEST(Hook, RunInOrderOnTheSum) {
  const Tensor x = leaf({1});
  const Tensor h = mul(x, 1.0);
  std::vector<double> seen;
  for (int i = 0; i < 2; ++i) {
    h.register_hook([&](const Tensor& g) {
      seen.push_back(values(g)[0]);
      return add(g, 1.0);
    });
  }
  add(mul(h, 2.0), mul(h, 3.0)).backward();
  EXPECT_EQ(seen, (Values{5, 6}));
  EXPECT_EQ(values(x.grad()), (Values{7}));
}

TEST(Hook, OnLeafBeforeAccumulation) {
  const Tensor x = leaf({1});
  x.register_hook([](const Tensor& g) { return mul(g, 2.0); });
  mul(x, 3.0).backward();
  mul(x, 3.0).backward();
  EXPECT_EQ(values(x.grad()), (Values{12}));
  EXPECT_EQ(values(autograd::grad({mul(x, 3.0)}, {x})[0]), (Values{6}));
}

TEST(Hook, ARemovedHookIsNotCalled) {
  const Tensor x = leaf({1});
  int calls = 0;
  const auto count = [&](const Tensor&) {
    ++calls;
    return Tensor();
  };
  const int64_t first = x.register_hook(count);
  const int64_t second = x.register_hook(count);
  x.remove_hook(first);
  mul(x, 1.0).backward();
  EXPECT_EQ(calls, 1);
  x.remove_hook(second);
  mul(x, 1.0).backward();
  EXPECT_EQ(calls, 1);
  EXPECT_ERROR(x.remove_hook(first), "no hook");
  EXPECT_ERROR(plain({1}).register_hook(count), "does not require grad");
}

TEST(Hook, CanRemoveItself) {
  const Tensor x = leaf({1});
  int calls = 0;
  int64_t id = 0;
  id = x.register_hook([&](const Tensor&) {
    ++calls;
    x.remove_hook(id);
    return Tensor();
  });
  mul(x, 1.0).backward();
  mul(x, 1.0).backward();
  EXPECT_EQ(calls, 1);
}

TEST(Hook, WrongReplacementIsAnError) {
  const Tensor x = leaf({1, 2});
  x.register_hook([](const Tensor&) { return plain({1}); });
  EXPECT_ERROR(sum(x).backward(), "hook");
}

// A hook belongs to the value on which it was registered, even after the tensor is overwritten.
TEST(Hook, BelongsToTheValueBeforeAWrite) {
  const Tensor x = leaf({2});
  const Tensor y = mul(x, 1.0);
  Values seen;
  const int64_t id = y.register_hook([&](const Tensor& g) {
    seen = values(g);
    return Tensor();
  });
  mul_(y, 3.0);
  y.backward({}, true);
  EXPECT_EQ(seen, (Values{3}));
  seen.clear();
  y.remove_hook(id);
  y.backward();
  EXPECT_TRUE(seen.empty());
}

TEST(Hook, PostAccumulateHooksSeeTheSum) {
  const Tensor x = leaf({1});
  Values seen;
  const int64_t id = autograd::register_post_accumulate_hook(
      x, [&](const Tensor& t) { seen.push_back(values(t.grad())[0]); });
  mul(x, 2.0).backward();
  mul(x, 3.0).backward();
  EXPECT_EQ(seen, (Values{2, 5}));
  x.remove_hook(id);
  mul(x, 3.0).backward();
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_ERROR(autograd::register_post_accumulate_hook(mul(x, 2.0), [](const Tensor&) {}),
               "MulBackward");
}

TEST(RetainGrad, KeepsAndAdds) {
  const Tensor x = leaf({1});
  const Tensor y = mul(x, 2.0);
  EXPECT_FALSE(y.grad().defined());
  y.retain_grad();
  y.retain_grad();
  const Tensor z = mul(y, 5.0);
  z.backward({}, true);
  EXPECT_EQ(values(y.grad()), (Values{5}));
  z.backward();
  EXPECT_EQ(values(y.grad()), (Values{10}));
  y.set_grad({});
  EXPECT_FALSE(y.grad().defined());
  EXPECT_ERROR(plain({1}).retain_grad(), "does not require grad");
  x.retain_grad();
}

TEST(RetainGrad, FollowsAWrite) {
  const Tensor x = leaf({1});
  const Tensor y = mul(x, 2.0);
  y.retain_grad();
  mul_(y, 3.0);
  mul(y, 7.0).backward();
  EXPECT_EQ(values(y.grad()), (Values{7}));
  EXPECT_EQ(values(x.grad()), (Values{42}));
}

TEST(RetainGrad, KeepsTheGradientThatHooksReturn) {
  const Tensor x = leaf({1});
  const Tensor y = mul(x, 2.0);
  y.retain_grad();
  y.register_hook([](const Tensor& g) { return mul(g, 10.0); });
  y.backward();
  EXPECT_EQ(values(y.grad()), (Values{10}));
}

TEST(RetainGrad, TensorMayBeDestroyedFirst) {
  const Tensor x = leaf({1});
  Tensor y = mul(x, 2.0);
  y.retain_grad();
  const Tensor z = mul(y, 5.0);
  y = Tensor();
  z.backward();
  EXPECT_EQ(values(x.grad()), (Values{10}));
}

// In a process of its own, since the warning comes once per process.
TEST(RetainGrad, ReadingTheGradOfANonLeafWarnsOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    const Tensor x = leaf({1});
    const Tensor h = mul(x, 2.0);
    const Tensor retained = mul(x, 3.0);
    retained.retain_grad();
    add(h, retained).backward();
    const bool quiet =
        x.grad().defined() && retained.grad().defined() && !plain({1}).grad().defined();
    std::fputs(quiet ? "first;" : "no grad;", stderr);
    h.grad();
    h.grad();
    std::exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0),
              "^first;mytorch: warning: \\[grad\\] a tensor that is not a leaf \\(MulBackward made "
              "it\\)[^\n]*retain_grad\\(\\)[^\n]*\n$");
}

}  // namespace
}  // namespace mytorch
