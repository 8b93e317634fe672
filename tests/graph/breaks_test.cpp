// Functions that one graph cannot hold (CompileOptions::allow_breaks).
#include "mytorch/autograd.h"
#include "mytorch/compile.h"
#include "mytorch/generator.h"
#include "mytorch/grad_mode.h"
#include "mytorch/mytorch.h"
#include "mytorch/tensor_impl.h"
#include "tests/autograd/util.h"
#include "tests/core/random_seed.h"
#include "tests/core/same_bits.h"
#include "tests/graph/device.h"

namespace mytorch {
namespace {

namespace F = nn::functional;

const CompileOptions kBreaks{.mode = CompileMode::kExact, .allow_breaks = true};

uint64_t fresh_seed() {
  static uint64_t number = 0;
  return testing::random_seed() + ++number;
}
Tensor drawn_afresh(IntList sizes) {
  return randn(sizes, kFloat32, {}, Generator(fresh_seed())).to(test_device());
}

TEST(Breaks, AHostReadSplitsTheGraph) {
  const auto f = [](const Tensor& x) {
    const Tensor y = relu(x * 2 + 1);
    const float total = y.sum().item<float>();
    return total > 1e6f ? y : exp(-y) * 3;
  };
  auto compiled = compile(f, kBreaks);
  for (int i = 0; i < 5; ++i) {
    const Tensor x = drawn_afresh({4, 5});
    expect_same(compiled(x), f(x));
  }
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(stats.recorded, 1);
  EXPECT_EQ(stats.replayed, 4);
  EXPECT_EQ(stats.segments, 2);
  EXPECT_EQ(stats.recorded_segments, 2);
  EXPECT_EQ(stats.replayed_segments, 8);
  ASSERT_EQ(stats.breaks.size(), 1u);
  EXPECT_EQ(stats.breaks[0].op, "item");
  EXPECT_NE(stats.breaks[0].reason.find("computes"), std::string::npos);
  EXPECT_NE(compiled.text().find("break item"), std::string::npos) << compiled.text();
}

TEST(Breaks, AFunctionThatOneGraphHoldsIsOne) {
  int calls = 0;
  auto compiled = compile(
      [&](const Tensor& x) {
        ++calls;
        return (x + 1).sum();
      },
      kBreaks);
  for (int i = 0; i < 4; ++i) compiled(drawn_afresh({3}));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(compiled.stats().replayed, 3);
  EXPECT_TRUE(compiled.stats().breaks.empty());
}

TEST(Breaks, WithoutTheOptionTheyAreRefused) {
  auto compiled = compile([](const Tensor& x) { return x + x.sum().item<float>(); });
  EXPECT_THROW(compiled(ones({2}, kFloat32, test_device())), Error);
}

TEST(Breaks, BranchesPickTheirContinuation) {
  int positive = 0, negative = 0;
  const auto f = [&](const Tensor& x) {
    const Tensor mean = x.mean();
    if (mean.item<float>() > 0) {
      ++positive;
      return sqrt(abs(x)) + mean;
    }
    ++negative;
    return exp(x) - mean;
  };
  auto compiled = compile(f, kBreaks);
  for (int i = 0; i < 12; ++i) {
    const Tensor x = drawn_afresh({64}) + (i % 3 == 0 ? 3.0 : -3.0);
    expect_same(compiled(x), f(x));
  }
  EXPECT_EQ(positive, 8);
  EXPECT_EQ(negative, 16);
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(stats.recorded, 2);
  EXPECT_EQ(stats.replayed, 10);
  EXPECT_EQ(stats.recorded_segments, 3);
}

// A branch that is no break: the graphs part where the operators differ.
TEST(Breaks, ABranchInTheMiddleOfASegmentSplitsIt) {
  bool cubic = false;
  const auto f = [&](const Tensor& x) {
    const float first = (x * 2)[0].item<float>();
    const Tensor y = tanh(x) + 1;
    const Tensor z = cubic ? y * y * y : y + y;
    return z * 2 + (first > 100 ? 1 : 0);
  };
  auto compiled = compile(f, kBreaks);
  for (int i = 0; i < 12; ++i) {
    cubic = i % 4 >= 2;
    const Tensor x = drawn_afresh({8});
    expect_same(compiled(x), f(x));
  }
  const CompileStats stats = compiled.stats();
  EXPECT_LE(stats.recorded, 3);
  EXPECT_GE(stats.replayed, 9);
  EXPECT_EQ(stats.breaks.size(), 2u);
}

TEST(Breaks, ShapesThatDependOnValues) {
  const auto f = [](const Tensor& x) {
    const Tensor y = x * 2;
    const Tensor at = nonzero(y > 0);
    return y.sum() + at.to(kFloat32).sum();
  };
  auto compiled = compile(f, kBreaks);
  const Tensor pattern = tensor({1.f, -1.f, 2.f, -2.f, 3.f}).to(test_device());
  for (int i = 0; i < 5; ++i) {
    const Tensor x = pattern * (i + 1);
    expect_same(compiled(x), f(x));
  }
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(stats.recorded, 1);
  ASSERT_EQ(stats.breaks.size(), 1u);
  EXPECT_EQ(stats.breaks[0].op, "nonzero");
  // Another number of elements is another graph behind the break.
  const Tensor all = ones({5}, kFloat32, test_device());
  expect_same(compiled(all), f(all));
  EXPECT_EQ(compiled.stats().recorded, 2);
}

TEST(Breaks, NumbersThatDifferInEachCallRunOutsideOfGraphs) {
  const auto f = [](const Tensor& x) {
    const Tensor y = exp(x);
    const float scale = 1 / y.sum().item<float>();
    const Tensor z = y * scale;
    return tanh(z + 1).sum() * 2;
  };
  auto compiled = compile(f, kBreaks);
  for (int i = 0; i < 10; ++i) {
    const Tensor x = drawn_afresh({16});
    expect_same(compiled(x), f(x));
  }
  EXPECT_LE(compiled.stats().recorded, 4);
  EXPECT_GE(compiled.stats().replayed, 6);
}

TEST(Breaks, HostMadeTensorsMayBeWritten) {
  const auto f = [](const Tensor& x) {
    Tensor counts = tensor({0.f, 0.f, 0.f}).to(test_device());
    counts.add_(x);
    if (counts.sum().item<float>() > 0) counts.mul_(2);
    Tensor fresh = tensor({1.f, 2.f, 3.f}).to(test_device());
    fresh.sub_(counts);
    return fresh;
  };
  auto compiled = compile(f, kBreaks);
  for (int i = 0; i < 6; ++i) {
    const Tensor x = ones({3}, kFloat32, test_device()) * (i + 1);
    expect_same(compiled(x), f(x));
  }
  EXPECT_EQ(compiled.stats().replayed, 5);
}

TEST(Breaks, HostMadeTensorsMayBeWrittenWithoutAnythingElse) {
  const auto f = [](const Tensor& x) {
    Tensor counts = tensor({0.f, 0.f, 0.f}).to(test_device());
    counts.add_(x);
    return counts * 2;
  };
  auto compiled = compile(f, kBreaks);
  for (int i = 0; i < 5; ++i) {
    const Tensor x = drawn_afresh({3});
    expect_same(compiled(x), f(x));
  }
  EXPECT_EQ(compiled.stats().replayed, 4);
}

// Forward, backward, clipping that reads the norm, an optimizer, a learning rate that changes.
TEST(Breaks, ATrainingStep) {
  const uint64_t seed = fresh_seed();
  const auto losses = [&](bool compile_it) {
    manual_seed(seed);
    nn::Sequential net(nn::Linear(6, 16), nn::Dropout(0.3), nn::GELU(), nn::Linear(16, 4));
    net.to(test_device());
    nn::optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
    int clipped = 0;
    const auto step = [&](const Tensor& x, const Tensor& y) {
      optimizer.zero_grad();
      const Tensor loss = F::cross_entropy(net(x), y);
      loss.backward();
      Tensor squares = zeros({}, kFloat32, test_device());
      for (const Tensor& p : net.parameters()) squares = squares + (p.grad() * p.grad()).sum();
      if (squares.sqrt().item<float>() > 1.0f) {
        ++clipped;
        for (const Tensor& p : net.parameters()) p.grad().mul_(0.5);
      }
      optimizer.step();
      return loss.detach();
    };
    auto compiled = compile(step, kBreaks);
    std::vector<Tensor> all;
    for (int i = 0; i < 14; ++i) {
      if (i == 8) optimizer.set_lr(0, 3e-3);
      const Tensor x = randn({5, 6}).to(test_device()) * (i % 2 == 0 ? 4.0 : 0.2),
                   y = tensor({0, 1, 2, 3, 0}).to(test_device());
      all.push_back(compile_it ? compiled(x, y) : step(x, y));
    }
    EXPECT_GT(clipped, 0);
    EXPECT_LT(clipped, 14);
    for (const Tensor& p : net.parameters()) all.push_back(p.detach().clone());
    if (compile_it) {
      EXPECT_GE(compiled.stats().replayed, 9) << compiled.stats().reason << compiled.text();
      EXPECT_FALSE(compiled.stats().breaks.empty());
    }
    return all;
  };
  const std::vector<Tensor> a = losses(true), b = losses(false);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) expect_same(a[i], b[i]);
}

TEST(Breaks, BackwardOutsideOfTheFunction) {
  nn::Linear layer(5, 3);
  layer.to(test_device());
  const auto f = [&](const Tensor& x) {
    const Tensor y = layer(x);
    return y.max().item<float>() > 1e6f ? y : y * y;
  };
  auto compiled = compile(f, kBreaks);
  for (int i = 0; i < 4; ++i) {
    const Tensor x = drawn_afresh({2, 5}).requires_grad_(),
                 same = x.detach().clone().requires_grad_();
    compiled(x).sum().backward();
    f(same).sum().backward();
    expect_same(x.grad(), same.grad());
  }
  EXPECT_EQ(compiled.stats().replayed, 3);
}

// What waits must not see later writes, nor the reverse.
TEST(Breaks, AliasesViewsAndWritesKeepTheirOrder) {
  const auto f = [](const Tensor& x, const Tensor& state) {
    const Tensor row = x[1];
    const Tensor before = row * 2;
    row.add_(1);
    const Tensor after = x.sum(0);
    state.copy_(after);
    const float seen = state[0].item<float>();
    state.mul_(seen > 0 ? 2 : 3);
    x.t().select(0, 0).zero_();
    return std::vector<Tensor>{before, after, x.clone(), state.view({1, 3})};
  };
  auto compiled = compile(f, kBreaks);
  for (int i = 0; i < 8; ++i) {
    const Tensor x = drawn_afresh({2, 3}), x2 = x.clone(), s = zeros({3}, kFloat32, test_device()),
                 s2 = zeros({3}, kFloat32, test_device());
    const auto a = compiled(x, s);
    const auto b = f(x2, s2);
    for (size_t k = 0; k < a.size(); ++k) expect_same(a[k], b[k]);
    expect_same(x, x2);
    expect_same(s, s2);
    EXPECT_TRUE(a[3].impl()->storage == s.impl()->storage);
  }
  EXPECT_GE(compiled.stats().replayed, 5);
}

// A host write into memory that waiting calls read comes after them.
TEST(Breaks, HostWritesWaitForWhatReads) {
  const auto f = [](const Tensor& x) {
    const Tensor y = x * 2;
    x.data<float>()[0] = 7;
    const Tensor z = x * 3;
    return std::vector<Tensor>{y, z};
  };
  auto compiled = compile(f, kBreaks);
  for (int i = 0; i < 5; ++i) {
    const Tensor x = drawn_afresh({3}).cpu(), x2 = x.clone();
    const auto a = compiled(x), b = f(x2);
    expect_same(a[0], b[0]);
    expect_same(a[1], b[1]);
  }
}

TEST(Breaks, RandomNumbersContinueTheGenerator) {
  const auto f = [](const Tensor& x) {
    const Tensor y = x + rand({4}, kFloat32, test_device());
    if (y.sum().item<float>() > 1e6f) return y;
    manual_seed(11);
    const Tensor z = y * rand({4}, kFloat32, test_device());
    manual_seed(12);
    return z + rand({4}, kFloat32, test_device()) + dropout(x, 0.5, true);
  };
  auto compiled = compile(f, kBreaks);
  for (int i = 0; i < 6; ++i) {
    const Tensor x = drawn_afresh({4});
    manual_seed(static_cast<uint64_t>(i));
    const Tensor a = compiled(x);
    const uint64_t call = default_generator().call();
    manual_seed(static_cast<uint64_t>(i));
    expect_same(a, f(x));
    EXPECT_EQ(default_generator().call(), call);
  }
  EXPECT_GE(compiled.stats().replayed, 2);
}

TEST(Breaks, ErrorsLeaveWhatWasBefore) {
  const Tensor count = zeros({1}, kFloat32, test_device());
  bool fails = false;
  auto compiled = compile(
      [&](const Tensor& x) {
        count.add_(1);
        if ((x * 2).sum().item<float>() > 1e6f) return x;
        count.add_(10);
        if (fails) throw std::runtime_error("stop");
        return count + x;
      },
      kBreaks);
  for (int i = 0; i < 3; ++i) compiled(ones({1}, kFloat32, test_device()));
  EXPECT_EQ(count.item<float>(), 33);
  fails = true;
  EXPECT_THROW(compiled(ones({1}, kFloat32, test_device())), std::runtime_error);
  // Both additions came before the error.
  EXPECT_EQ(count.item<float>(), 44);
  // A call with wrong shapes is an error of its operator.
  EXPECT_THROW(compiled(ones({3, 0}, kFloat32, test_device())
                            .expand({3, 0})
                            .matmul(ones({2, 2}, kFloat32, test_device()))),
               Error);
  fails = false;
  EXPECT_EQ(compiled(ones({1}, kFloat32, test_device())).item<float>(), 56);
}

TEST(Breaks, AnErrorOfAKernelComesWhenTheSegmentRuns) {
  const Tensor table = drawn_afresh({5, 3});
  auto compiled = compile(
      [&](const Tensor& index) {
        const Tensor rows = embedding(table, index) + 1;
        return rows.sum().item<float>() > 1e6f ? rows : rows * 2;
      },
      kBreaks);
  for (int i = 0; i < 3; ++i) compiled(tensor({0, 4}).to(test_device()));
  EXPECT_THROW(compiled(tensor({0, 5}).to(test_device())), Error);
  expect_same(compiled(tensor({1, 2}).to(test_device())),
              (embedding(table, tensor({1, 2}).to(test_device())) + 1) * 2);
}

TEST(Breaks, SavedValuesAreStillCheckedForWrites) {
  auto compiled = compile(
      [](const Tensor& x) {
        const Tensor y = exp(x);
        (void)y.sum().item<float>();
        y.mul_(2);
        return y.sum();
      },
      kBreaks);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = drawn_afresh({3}).requires_grad_();
    EXPECT_THROW(compiled(x).backward(), Error);
  }
  auto good = compile(
      [](const Tensor& x) {
        const Tensor y = exp(x);
        (void)y.sum().item<float>();
        return (y * y).sum();
      },
      kBreaks);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = drawn_afresh({3}).requires_grad_();
    good(x).backward();
    EXPECT_TRUE(x.grad().defined());
  }
}

TEST(Breaks, CheckComparesSegments) {
  setenv("MYTORCH_COMPILE", "check", 1);
  const auto f = [](const Tensor& x) {
    const Tensor y = softmax(x * 2, -1) + rand({3}, kFloat32, test_device());
    if (y.sum().item<float>() > 1e6f) return y;
    return y.transpose(0, 1).contiguous() * 3;
  };
  auto compiled = compile(f, {.allow_breaks = true});
  unsetenv("MYTORCH_COMPILE");
  for (int i = 0; i < 4; ++i) {
    const Tensor x = drawn_afresh({3, 3});
    manual_seed(5);
    const Tensor a = compiled(x);
    manual_seed(5);
    expect_same(a, f(x));
  }
  EXPECT_EQ(compiled.stats().replayed, 3);
  setenv("MYTORCH_COMPILE", "off", 1);
  auto off = compile(f, {.allow_breaks = true});
  unsetenv("MYTORCH_COMPILE");
  off(drawn_afresh({3, 3}));
  EXPECT_EQ(off.stats().recorded, 0);
}

TEST(Breaks, ATreeIsBounded) {
  int calls = 0;
  auto compiled = compile(
      [&](const Tensor& x) {
        const int n = ++calls;
        if ((x * 2).sum().item<float>() > 1e6f) return x;
        Tensor y = x;
        for (int i = 0; i < n % 20; ++i) y = i % 2 == 0 ? tanh(y) : y + 1;
        return y + zeros({n % 20 + 1}, kFloat32, test_device()).sum();
      },
      {.cache_size = 3, .allow_breaks = true});
  for (int i = 0; i < 60; ++i) {
    const Tensor x = drawn_afresh({3});
    const Tensor y = compiled(x);
    ASSERT_TRUE(y.defined());
  }
}

TEST(Breaks, MemoryOfIntermediatesIsFreed) {
  auto compiled = compile(
      [](const Tensor& x) {
        Tensor y = x;
        for (int i = 0; i < 5; ++i) y = y * 2;
        if (y.sum().item<float>() > 1e30f) return y;
        return y + 1;
      },
      kBreaks);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = drawn_afresh({3});
    const Tensor y = compiled(x);
    EXPECT_EQ(x.impl()->storage->refs.load(), 1u);
    EXPECT_EQ(y.impl()->storage->refs.load(), 1u);
    EXPECT_EQ(y.impl()->refs.load(), 1u);
  }
}

TEST(Breaks, SaveNamesTheBreak) {
  auto compiled = compile([](const Tensor& x) { return x + (x * 2).sum().item<float>(); }, kBreaks);
  compiled(ones({2}, kFloat32, test_device()));
  try {
    compiled.save("/tmp/none.mtg");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("item()"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace mytorch
