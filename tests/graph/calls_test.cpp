// Calls of compiled functions: absent tensors, numbers, checks of values, threads.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

TEST(CompiledState, RefusedReadsNameTheWayOut) {
  const Tensor p = full({3}, 0.5, kFloat64);
  const auto refused = [](const auto& f, const Tensor& x) {
    const std::string message = error_of([&] {
      auto compiled = compile(f);
      for (int i = 0; i < 2; ++i) compiled(x);
    });
    EXPECT_TRUE(message.empty() || message.find("allow_breaks") != std::string::npos) << message;
    auto parts = compile(f, {.allow_breaks = true});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(values(parts(x)), values(f(x)));
  };
  refused([&](const Tensor& x) { return repeat_interleave((x * 4).to(kInt64)); }, p);
  refused([&](const Tensor& x) { return x * x.sum().item<double>(); }, p);
  refused([&](const Tensor& x) { return x.index({x > 0}); }, p);
}

// Functions that messages name. The writes keep compilers from making their calls jumps.
volatile int behind_a_call;

[[gnu::noinline]] Tensor reads_its_loss(const Tensor& x) {
  const Tensor y = x * x.sum().item<double>();
  behind_a_call = 1;
  return y;
}
[[gnu::noinline]] Tensor asks_where_it_is_positive(const Tensor& x) {
  const Tensor y = nonzero(x > 0);
  behind_a_call = 2;
  return y;
}
[[gnu::noinline]] Tensor seeds_inside(const Tensor& x) {
  manual_seed(1);
  behind_a_call = 3;
  return x * 2;
}

TEST(CompiledState, RefusalsNameTheirCallers) {
  const auto refusal_of = [](const auto& f) {
    auto compiled = compile(f);
    return error_of([&] { compiled(plain({1, 2})); });
  };
  const std::string whole = refusal_of(reads_its_loss);
  EXPECT_NE(whole.find("(called from mytorch::(anonymous namespace)::reads_its_loss"),
            std::string::npos)
      << whole;
  EXPECT_NE(whole.find(" in graph_test"), std::string::npos) << whole;
  // A lambda that calls a function, and what its call goes through.
  const std::string nested =
      refusal_of([](const Tensor& x) { return asks_where_it_is_positive(x) * 2; });
  const size_t inner = nested.find("asks_where_it_is_positive");
  ASSERT_NE(inner, std::string::npos) << nested;
  EXPECT_NE(nested.find("RefusalsNameTheirCallers", inner), std::string::npos) << nested;
  EXPECT_EQ(nested.find("std::"), std::string::npos) << nested;
  EXPECT_EQ(nested.find("mytorch::Compiled"), std::string::npos) << nested;
  const std::string effect = refusal_of(seeds_inside);
  EXPECT_NE(effect.find("seeds_inside"), std::string::npos) << effect;
}

TEST(CompiledState, BreaksNameTheirCallers) {
  auto compiled = compile(reads_its_loss, {.allow_breaks = true});
  for (int i = 0; i < 3; ++i) compiled(plain({1, 2}));
  const CompileStats stats = compiled.stats();
  ASSERT_EQ(stats.breaks.size(), 1u);
  EXPECT_NE(stats.breaks[0].site.find("reads_its_loss"), std::string::npos) << stats.breaks[0].site;
  EXPECT_ERROR(compiled.save("never"), "reads_its_loss");
}

TEST(CompiledState, ArgumentsMayBeAbsent) {
  const auto f = [](const Tensor& x, const Tensor& y, const std::vector<Tensor>& rest) {
    Tensor sum = zeros({2}, kFloat64);
    if (x.defined()) sum = sum + x;
    if (y.defined()) sum = sum - y * 10;
    for (size_t i = 0; i < rest.size(); ++i) {
      if (rest[i].defined()) sum = sum * rest[i] + static_cast<double>(i);
    }
    return std::vector<Tensor>{sum, y.defined() ? y * 2 : Tensor()};
  };
  auto compiled = compile(f, {.cache_size = 12});
  const Tensor a = tensor({1.0, 2}, kFloat64), b = tensor({3.0, 4}, kFloat64);
  const Tensor none;
  for (int i = 0; i < 3; ++i) {
    for (const auto& [x, y] : {std::pair(a, none), {none, a}, {none, none}, {a, b}}) {
      for (const auto& rest : {std::vector{none, b}, {b, none}, {b}}) {
        const std::vector<Tensor> expected = f(x, y, rest), seen = compiled(x, y, rest);
        EXPECT_EQ(values(seen[0]), values(expected[0]));
        EXPECT_EQ(seen[1].defined(), expected[1].defined());
        if (seen[1].defined()) {
          EXPECT_EQ(values(seen[1]), values(expected[1]));
        }
      }
    }
  }
  EXPECT_EQ(compiled.stats().recorded, 12);
}

TEST(CompiledState, NumbersAreComparedByTypeAndBits) {
  auto quotient = compile([](const Tensor& x, double k) { return x / k; });
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(values(quotient(plain({1}), 0.0))[0], HUGE_VAL);
    EXPECT_EQ(values(quotient(plain({1}), -0.0))[0], -HUGE_VAL);
    EXPECT_TRUE(std::isnan(values(quotient(plain({1}), NAN))[0]));
  }
  EXPECT_EQ(quotient.stats().recorded, 3);
  auto sum = compile([](const Tensor& x, auto k) { return x + k; });
  const Tensor zero = zeros({1}, kInt64);
  constexpr int64_t kLarge = (int64_t{1} << 53) + 1;
  for (int i = 0; i < 2; ++i) {
    for (const int64_t k : {kLarge, kLarge - 1}) {
      EXPECT_EQ(sum(zero, k).item<int64_t>(), k);
    }
    EXPECT_EQ(sum(zero, 1).dtype(), kInt64);
    EXPECT_EQ(sum(zero, 1.0).dtype(), kFloat32);
    EXPECT_EQ(sum(zero, true).dtype(), kInt64);
  }
}

// A function whose recordings are not used again is not slowed down by making them.
TEST(CompiledState, FunctionsWithoutReplaysRunAsTheyAre) {
  auto f = compile([](const Tensor& x, int64_t k) { return x + k; });
  for (int64_t k = 0; k < 200; ++k) EXPECT_EQ(values(f(plain({1}), k))[0], 1.0 + k);
  const CompileStats stats = f.stats();
  EXPECT_LT(stats.recorded, 25);
  EXPECT_EQ(stats.recorded + stats.unrecorded, 200);
  EXPECT_NE(stats.reason.find("not used again"), std::string::npos) << stats.reason;
  // It is tried again, and one that is used ends that.
  for (int i = 0; i < 200; ++i) EXPECT_EQ(values(f(plain({1}), -1))[0], 0);
  EXPECT_GT(f.stats().replayed, 0);
  for (int64_t k = 300; k < 304; ++k) EXPECT_EQ(values(f(plain({1}), k))[0], 1.0 + k);
  EXPECT_EQ(f.stats().recorded, stats.recorded + 5);
}

TEST(CompiledState, ChecksOfValuesAreLeftOut) {
  const Tensor y = tensor({1.0, 0, 0}, kFloat64);
  const auto f = [&](const Tensor& x) {
    return nn::functional::binary_cross_entropy(x * 1, y, {.reduction = "none"});
  };
  auto compiled = compile(f);
  const Tensor p = tensor({0.25, 0.5, 0.75}, kFloat64);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(values(compiled(p)), values(f(p)));
  const Tensor wrong = tensor({2.0, 0.5, -1}, kFloat64);
  EXPECT_THROW(f(wrong), Error);
  const std::vector<double> terms = values(compiled(wrong));
  EXPECT_TRUE(std::isnan(terms[0]) && std::isnan(terms[2]));
  EXPECT_EQ(terms[1], std::log(2.0));

  auto middle = compile([](const Tensor& x, const Tensor& q) { return quantile(x * 1, q * 1, 0); });
  for (int i = 0; i < 2; ++i) {
    const Values found =
        values(middle(tensor({1.0, 2, 3}, kFloat64), tensor({0.5, 2.0, 0.0}, kFloat64)));
    EXPECT_TRUE(found[0] == 2 && std::isnan(found[1]) && found[2] == 1);
  }
  auto draw = compile([](const Tensor& w) { return multinomial(w * 1, 2, true); });
  for (int i = 0; i < 2; ++i) {
    const Values drawn = values(draw(tensor({{0.0, 3, 0}, {-1.0, 1, 1}, {0.0, 0, 0}}, kFloat64)));
    EXPECT_EQ(drawn, (Values{1, 1, -1, -1, -1, -1}));
  }
}

TEST(CompiledState, ThreadsCallOneFunction) {
  auto f = compile([](const Tensor& x) { return (x * 2 + 1).square().sum(IntList{1}); });
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        if (values(f(full({3, 5}, t, kFloat64)))[2] != 5.0 * (2 * t + 1) * (2 * t + 1)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace mytorch
