// Which kernel calls of a plan become one.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "graph/fusion/fused_op.h"
#include "gtest/gtest.h"
#include "mytorch/compile.h"
#include "mytorch/grad_mode.h"
#include "mytorch/mytorch.h"
#include "mytorch/profiler.h"
#include "tests/graph/device.h"

namespace mytorch {
namespace {

// Compiles, runs often enough to replay, and returns what the plan looks like.
template <class F>
CompileStats plan_of(F f, const Tensor& x, CompileMode mode = CompileMode::kDefault) {
  auto compiled = compile(f, {.mode = mode});
  for (int i = 0; i < 4; ++i) {
    const Tensor own = x.clone(), eager = x.clone();
    const Tensor found = compiled(own), expected = f(eager);
    EXPECT_TRUE(allclose(found.to(kFloat32), expected.to(kFloat32), 1e-2, 1e-2)) << i;
    EXPECT_TRUE(allclose(own.to(kFloat32), eager.to(kFloat32), 1e-2, 1e-2)) << i;
  }
  return compiled.stats();
}

TEST(Fusion, AChainIsOneCallWithoutIntermediates) {
  const auto chain = [](Tensor x) {
    for (int i = 0; i < 10; ++i) x = tanh(x * 0.5 + 1);
    return x;
  };
  const CompileStats stats = plan_of(chain, drawn({5, 300}, 1));
  EXPECT_EQ(stats.kernel_calls, 1);
  EXPECT_EQ(stats.fused, 29);
  EXPECT_EQ(stats.intermediate_bytes, 0);
}

TEST(Fusion, TheReportSaysWhatJoinsAndWhyNot) {
  const auto f = [](const Tensor& x) { return exp(tanh(x * 2).sum({0})) + 1; };
  const std::vector<std::string> report = plan_of(f, drawn({5, 300}, 1)).fusion_report;
  ASSERT_FALSE(report.empty());
  EXPECT_EQ(report[0].find("fused: mul, tanh over (5, 300)"), 0u) << report[0];
  bool says_why = false;
  for (const std::string& line : report) {
    says_why = says_why || line.find("apart from its neighbor, because") != std::string::npos;
  }
  EXPECT_TRUE(says_why) << report[0] << "\n" << report.back();
}

TEST(Fusion, AValueThatIsSeenIsStored) {
  auto compiled = compile([](const Tensor& x) {
    const Tensor a = x + 1, b = matmul(a, a.t());
    return std::tuple(tanh(a), b, a * 2);
  });
  const Tensor x = drawn({6, 9}, 2);
  for (int i = 0; i < 4; ++i) {
    const auto [t, b, d] = compiled(x);
    const Tensor a = x + 1;
    EXPECT_TRUE(equal(t, tanh(a)));
    EXPECT_TRUE(allclose(b, matmul(a, a.t())));
    EXPECT_TRUE(equal(d, a * 2));
  }
  EXPECT_EQ(compiled.stats().kernel_calls, 2);
}

TEST(Fusion, CallsOnTheOtherSideOfAProductJoin) {
  // The first call moves down to the last one, which needs the product.
  const auto f = [](const Tensor& x) {
    const Tensor a = exp(x), b = matmul(x, x);
    return a * b;
  };
  EXPECT_EQ(plan_of(f, drawn({7, 7}, 3)).kernel_calls, 2);
}

TEST(Fusion, WritesInPlaceStayInOrder) {
  const auto f = [](Tensor x) {
    const Tensor before = x * 2;
    x.add_(1);
    x.mul_(before);
    const Tensor after = x - before;
    x.narrow(0, 0, 1).fill_(3);
    return after + x;
  };
  plan_of(f, drawn({4, 5}, 4));
}

TEST(Fusion, ViewsWithOtherElementsDoNotJoin) {
  const auto f = [](Tensor x) {
    x.mul_(2);
    return x + x.t();
  };
  EXPECT_EQ(plan_of(f, drawn({40, 40}, 5)).kernel_calls, 2);
}

TEST(Fusion, TakesMasksBroadcastsAndConversions) {
  const Tensor row = drawn({9}, 7), column = drawn({6, 1}, 8);
  const auto f = [&](const Tensor& x) {
    const Tensor mask = logical_and(x > row, x < 2);
    return where(mask, x * column, 0.25).to(kFloat64) * mask;
  };
  EXPECT_EQ(plan_of(f, drawn({6, 9}, 6)).kernel_calls, 1);
}

TEST(Fusion, ChainsOf16BitFloatsAreRoundedOnceUnlessExact) {
  const auto f = [](const Tensor& x) { return (x + 256) - 256; };
  const Tensor x = full({100}, 0.25, kBFloat16).to(test_device());
  auto exact = compile(f, {.mode = CompileMode::kExact});
  auto close = compile(f);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(equal(exact(x), f(x)));
    const Tensor found = close(x);
    EXPECT_TRUE(i < 2 || equal(found, x));
  }
  EXPECT_EQ(exact.stats().kernel_calls, 1);
}

Tensor layer_norm(const Tensor& x) {
  const Tensor wide = x.to(kFloat32), centered = wide - wide.mean({-1}, true);
  const Tensor scale = rsqrt(centered.square().mean({-1}, true) + 1e-5);
  return (centered * scale + 1).to(x.dtype());
}
// With a sink in the sum: no rule makes it an operator.
Tensor softmax_of(const Tensor& x) {
  const Tensor e = exp(x - x.amax({-1}, true));
  return e / (e.sum({-1}, true) + 1);
}

TEST(Fusion, NormsOfRowsAreOneCall) {
  for (const int64_t width : {1, 7, 64, 1500}) {
    EXPECT_EQ(plan_of(softmax_of, drawn({80, width}, 9)).kernel_calls, 1) << width;
    EXPECT_EQ(plan_of(softmax_of, drawn({80, width}, 10, kFloat64)).kernel_calls, 1) << width;
    EXPECT_EQ(plan_of(layer_norm, drawn({5, 16, width}, 11)).kernel_calls, 1) << width;
    EXPECT_EQ(plan_of(layer_norm, drawn({80, width}, 12, kBFloat16)).kernel_calls, 1) << width;
  }
}

TEST(Fusion, SeveralCallsThatOneNeedsJoin) {
  const Tensor other = drawn({80, 40}, 17, kBFloat16), weight = drawn({40}, 18);
  const auto f = [&](const Tensor& x) {
    const Tensor sum = x.to(kFloat32) + other.to(kFloat32);
    const Tensor scale = rsqrt(sum.square().mean({-1}, true) + 1e-6);
    return (sum * scale * weight).to(kBFloat16);
  };
  EXPECT_EQ(plan_of(f, drawn({80, 40}, 16, kBFloat16)).kernel_calls, 1);
}

// One output overwrites the operand of which another one is a copy.
TEST(Fusion, OutputsAreCopiesOfOperandsThatOtherOutputsOverwrite) {
  for (const CompileMode mode : {CompileMode::kExact, CompileMode::kDefault}) {
    const auto f = [](const Tensor& x, const Tensor& y, const Tensor& z) {
      y.copy_(x);
      x.clamp_(-0.5, 0.5);
      z.copy_(y);
    };
    auto compiled = compile(f, {.mode = mode});
    for (int call = 0; call < 3; ++call) {
      std::vector<Tensor> own, eager;
      for (uint64_t i = 0; i < 3; ++i) {
        own.push_back(drawn({70, 40}, 20 + i));
        eager.push_back(own[i].clone());
      }
      compiled(own[0], own[1], own[2]);
      f(eager[0], eager[1], eager[2]);
      for (size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(own[i].equal(eager[i])) << i << " of call " << call;
    }
  }
}

TEST(Fusion, ExactNumbersHaveTheTypeOfTheirOperands) {
  const auto f = [](const Tensor& x, const Tensor& y) {
    return (x + y) * 0.6666666666666666 - 0.1;
  };
  for (const ScalarType dtype : {kFloat16, kBFloat16, kFloat32}) {
    auto compiled = compile(f, {.mode = CompileMode::kExact});
    for (uint64_t i = 0; i < 4; ++i) {
      const Tensor x = drawn({90}, 30 + i, dtype), y = drawn({90}, 40 + i, dtype);
      EXPECT_TRUE(compiled(x, y).equal(f(x, y))) << dtype_name(dtype);
    }
    EXPECT_EQ(compiled.stats().kernel_calls, 1);
  }
}

TEST(Fusion, ValuesOfRowsAreStoredIfSeen) {
  const auto f = [](const Tensor& x) {
    const Tensor mean = x.mean({-1}, true), centered = x - mean;
    return centered * rsqrt(centered.square().sum({-1}, true)) + matmul(mean.t(), mean);
  };
  EXPECT_EQ(plan_of(f, drawn({90, 30}, 13)).kernel_calls, 3);
}

TEST(Fusion, ReductionsThatDoNotKeepTheirDimensionsJoin) {
  const auto softmax = [](const Tensor& x) {
    const Tensor e = exp(x - x.amax({-1}).unsqueeze(-1));
    return e / e.sum({-1}).unsqueeze(-1);
  };
  const auto normalized = [](const Tensor& x) {
    const Tensor mean = x.mean({-2, -1}), spread = x.square().mean({-2, -1}) - mean.square();
    return (x - mean.view({-1, 1, 1})) * rsqrt(spread + 1).reshape({-1, 1, 1});
  };
  for (const int64_t width : {1, 7, 300}) {
    EXPECT_EQ(plan_of(softmax, drawn({80, width}, 20)).kernel_calls, 1) << width;
    EXPECT_EQ(plan_of(softmax, drawn({5, 16, width}, 21, kBFloat16)).kernel_calls, 1) << width;
    EXPECT_EQ(plan_of(normalized, drawn({90, 3, width}, 22)).kernel_calls, 1) << width;
  }
}

TEST(Fusion, ResultsOfRowsLeaveInTheirShape) {
  const auto f = [](const Tensor& x) { return log(exp(x).sum({-1})) * 2 + 1; };
  EXPECT_EQ(plan_of(f, drawn({80, 50}, 23)).kernel_calls, 1);
  EXPECT_EQ(plan_of(f, drawn({4, 20, 50}, 24, kFloat16)).kernel_calls, 1);
}

TEST(Fusion, ViewsThatKeepTheOrderOfElementsJoin) {
  const auto f = [](const Tensor& x) {
    const Tensor flat = tanh(x).view({80, 64}), norm = rsqrt(flat.square().sum({-1}) + 1);
    return (flat * norm.unsqueeze(1)).view({8, 10, 64}) + x.unsqueeze(0).squeeze(0);
  };
  EXPECT_EQ(plan_of(f, drawn({8, 10, 64}, 25)).kernel_calls, 1);
  // (6, 4) and (4, 6) have no common dimensions.
  const auto g = [](const Tensor& x) { return tanh(x).view({4, 6}) * x.view({4, 6}); };
  EXPECT_EQ(plan_of(g, drawn({6, 4}, 26)).kernel_calls, 2);
  // A value of rows is not one of columns.
  const auto h = [](const Tensor& x) {
    const Tensor sum = x.sum({-1});
    return x * sum.unsqueeze(-1) + sum;
  };
  EXPECT_EQ(plan_of(h, drawn({70, 70}, 27)).kernel_calls, 2);
}

TEST(Fusion, LayerNormWithTheVarianceOfRowsIsOneCall) {
  const auto f = [](const Tensor& x) {
    const Tensor wide = x.to(kFloat32);
    const auto [variance, mean] = var_mean(wide, {-1}, 0, true);
    return ((wide - mean) * rsqrt(variance + 1e-5)).to(x.dtype());
  };
  const auto g = [](const Tensor& x) {
    return (x - x.mean({-1}, true)) * rsqrt(var(x, {-1}, 1).unsqueeze(-1) + 1e-5);
  };
  for (const int64_t width : {2, 33, 1500}) {
    EXPECT_EQ(plan_of(f, drawn({80, width}, 28)).kernel_calls, 1) << width;
    EXPECT_EQ(plan_of(f, drawn({80, width}, 29, kBFloat16)).kernel_calls, 1) << width;
    EXPECT_EQ(plan_of(g, drawn({80, width}, 30, kFloat64)).kernel_calls, 1) << width;
  }
  // The mean is large beside the deviations, so that its rounding moves the results by 0.04.
  // Without a first pass for the mean, the variance would be wrong in all digits.
  auto compiled = compile(f);
  const Tensor x = drawn({80, 300}, 31) * 0.01 + 3000;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(allclose(compiled(x), f(x), 1e-3, 0.1));
}

Tensor row_losses(const Tensor& x, const Tensor& labels) {
  return logsumexp(x, {-1}) - x.gather(-1, labels.unsqueeze(-1)).squeeze(-1);
}

TEST(Fusion, CrossEntropyIsOneCallAndTheMeanOfItsRows) {
  const Tensor labels = randint(0, 50, {80}, kInt64, {}, Generator(33)).to(test_device());
  const auto f = [&](const Tensor& x) { return row_losses(x, labels).mean(); };
  EXPECT_EQ(plan_of(f, drawn({80, 50}, 32)).kernel_calls, 2);
  const auto from_the_end = [&](const Tensor& x) {
    const Tensor wide = x.to(kFloat32), largest = wide.amax({-1}, true);
    const Tensor sum = exp(wide - largest).sum({-1}, true).log() + largest;
    return take_along_dim(sum - wide, (labels - 50).unsqueeze(-1), -1).squeeze(-1);
  };
  EXPECT_LE(plan_of(from_the_end, drawn({80, 50}, 34, kBFloat16)).kernel_calls, 2);
}

TEST(Fusion, RowsThatAreLongerThanTheCache) {
  const Tensor labels = full({64}, 59998, kInt64).to(test_device());
  const auto f = [&](const Tensor& x) { return row_losses(x, labels) + var(x, {-1}, 1); };
  EXPECT_EQ(plan_of(f, drawn({64, 60000}, 57)).kernel_calls, 1);
  EXPECT_EQ(plan_of(softmax_of, drawn({64, 60000}, 58, kFloat16)).kernel_calls, 1);
}

TEST(Fusion, BackwardOfCrossEntropyIsOneCall) {
  const Tensor labels = randint(0, 50, {80}, kInt64, {}, Generator(36)).to(test_device());
  const auto f = [&](const Tensor& x) {
    const Tensor own = x.detach().requires_grad_(true);
    row_losses(own, labels).mean().backward();
    return own.grad();
  };
  EXPECT_LE(plan_of(f, drawn({80, 50}, 35)).kernel_calls, 2);
}

TEST(Fusion, SoftmaxJoinsItsNeighbors) {
  const Tensor labels = randint(0, 50, {80}, kInt64, {}, Generator(51)).to(test_device());
  const auto loss = [&](const Tensor& x) {
    return -log_softmax(x * 0.5, -1).gather(-1, labels.unsqueeze(-1)).squeeze(-1);
  };
  const auto weighted = [](const Tensor& x) { return softmax(x * 0.5, -1) * x; };
  for (const ScalarType dtype : {kFloat32, kBFloat16, kFloat64}) {
    EXPECT_EQ(plan_of(loss, drawn({80, 50}, 52, dtype)).kernel_calls, 1);
    EXPECT_EQ(plan_of(weighted, drawn({80, 50}, 53, dtype)).kernel_calls, 1);
  }
  const auto backward = [&](const Tensor& x) {
    const Tensor own = x.detach().requires_grad_(true);
    loss(own).mean().backward();
    return own.grad();
  };
  EXPECT_LE(plan_of(backward, drawn({80, 50}, 54)).kernel_calls, 2);
  const auto of_softmax = [&](const Tensor& x) {
    const Tensor own = x.detach().requires_grad_(true);
    (softmax(own, -1) * x.square()).sum().backward();
    return own.grad();
  };
  EXPECT_LE(plan_of(of_softmax, drawn({80, 50}, 55)).kernel_calls, 2);
  // Alone, they are kernels of their own.
  const auto alone = [](const Tensor& x) { return softmax(x, -1); };
  EXPECT_EQ(plan_of(alone, drawn({80, 50}, 56)).fused, 0);
}

TEST(Fusion, ElementsOfComputedRowsAreSelected) {
  const Tensor table = drawn({13, 40}, 59), own = drawn({40, 40}, 60), weight = drawn({40}, 61);
  const Tensor index = randint(0, 13, {80}, kInt64, {}, Generator(62)).to(test_device());
  const Tensor labels = randint(0, 40, {80, 1}, kInt64, {}, Generator(63)).to(test_device());
  // The element alone, by what computes it; or, of a row that is looked up, by its place.
  const auto of_row = [&](const Tensor& x) {
    const Tensor y = tanh(x * weight) * x.sum({-1}, true);
    return y.gather(-1, labels) + y.amax({-1}, true);
  };
  const auto of_table = [&](const Tensor& x) {
    const Tensor y = index_select(table, 0, index) + x;
    return y.gather(-1, labels) * y.sum({-1}, true);
  };
  EXPECT_EQ(plan_of(of_row, drawn({80, 40}, 64)).kernel_calls, 1);
  EXPECT_EQ(plan_of(of_table, drawn({80, 40}, 65)).kernel_calls, 1);
  // A row is not written while others read an element of it.
  const auto written = [&](const Tensor& x) {
    Tensor product = matmul(x, own);
    const Tensor one = tanh(product).gather(-1, labels), sum = product.sum({-1}, true);
    product.mul_(2).add_(one + sum);
    return product;
  };
  EXPECT_EQ(plan_of(written, drawn({80, 40}, 66)).kernel_calls, 3);
}

// A tensor of 0 dimensions takes 0 and -1 as the dimension of its element.
TEST(Fusion, ReductionsOfOneElementWithoutDimensions) {
  const Tensor x = drawn({}, 36);
  plan_of([](const Tensor& one) { return exp(one).prod(0) * 2; }, x);
  plan_of([](const Tensor& one) { return exp(one).sum({-1}) + one.amax({0}); }, x);
  plan_of([](const Tensor& one) { return logsumexp(one * 2, {0}) + softmax(one, 0); }, x);
}

TEST(Fusion, RowsOfATableJoinWhatFollows) {
  const Tensor table = drawn({13, 40}, 37),
               index = randint(0, 13, {5, 16}, kInt64, {}, Generator(38)).to(test_device());
  const auto looked_up = [&](const Tensor& x) {
    const Tensor e = nn::functional::embedding(index, table) + x;
    return e * rsqrt(e.square().mean({-1}, true) + 1);
  };
  EXPECT_EQ(plan_of(looked_up, drawn({5, 16, 40}, 39)).kernel_calls, 1);
  const Tensor flat = index.view({80}).to(kInt32);
  const auto selected = [&](const Tensor& x) { return tanh(index_select(table, 0, flat)) * x; };
  EXPECT_EQ(plan_of(selected, drawn({80, 40}, 40)).kernel_calls, 1);
  const Tensor within = randint(0, 40, {80, 6}, kInt64, {}, Generator(41)).to(test_device());
  const auto gathered = [&](const Tensor& x) { return exp(x.gather(1, within)).sum({-1}); };
  EXPECT_EQ(plan_of(gathered, drawn({80, 40}, 42)).kernel_calls, 1);
}

TEST(Fusion, AnIndexOutOfRangeIsTheErrorOfItsOperator) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "a GPU reports such an error later";
  auto compiled =
      compile([](const Tensor& x, const Tensor& labels) { return row_losses(x, labels); });
  const Tensor x = drawn({80, 50}, 43), good = full({80}, 49, kInt64);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(allclose(compiled(x, good), row_losses(x, good)));
  EXPECT_EQ(compiled.stats().kernel_calls, 1);
  for (const int64_t wrong : {50, -1}) {
    Tensor bad = good.clone();
    bad[77].fill_(wrong);
    try {
      compiled(x, bad);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kValue);
      EXPECT_EQ(std::string(error.what()), "[gather] index " + std::to_string(wrong) +
                                               " is out of range for dimension 1 of size 50");
    }
  }
  EXPECT_TRUE(allclose(compiled(x, good), row_losses(x, good)));
}

TEST(Fusion, ALookUpThatMayFailDoesNotJoinWritesThatAreSeen) {
  const Tensor total = zeros({80, 40}).to(test_device());
  auto compiled = compile([&](const Tensor& x, const Tensor& index) {
    const Tensor y = exp(x.gather(1, index)) - x.sum({-1}, true);
    total.add_(y);
    return y;
  });
  const Tensor x = drawn({80, 40}, 45);
  const Tensor index = randint(0, 40, {80, 40}, kInt64, {}, Generator(44)).to(test_device());
  Tensor expected = total.clone();
  for (int i = 0; i < 4; ++i) {
    compiled(x, index);
    expected.add_(exp(x.gather(1, index)) - x.sum({-1}, true));
    EXPECT_TRUE(allclose(total, expected, 1e-4, 1e-4)) << i;
  }
  EXPECT_EQ(compiled.stats().kernel_calls, 2);
  if (!test_device().is_cpu()) return;  // a GPU reports the error later
  Tensor bad = index.clone();
  bad[79].fill_(40);
  const Tensor before = total.clone();
  EXPECT_THROW(compiled(x, bad), Error);
  EXPECT_TRUE(equal(total, before));
}

TEST(Fusion, SpecialValuesOfRows) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  Tensor x = drawn({80, 9}, 46);
  x[3].fill_(-kInf);
  x[4][2].fill_(kInf);
  x[5][8].fill_(kNan);
  const Tensor labels = full({80}, 2, kInt64).to(test_device());
  auto compiled = compile([&](const Tensor& y) {
    return std::tuple(row_losses(y, labels), var(y, {-1}, 1), y.amax({-1}));
  });
  for (int i = 0; i < 4; ++i) {
    const auto [loss, variance, most] = compiled(x);
    EXPECT_TRUE(allclose(loss, row_losses(x, labels), 1e-4, 1e-4, true)) << i;
    EXPECT_TRUE(allclose(variance, var(x, {-1}, 1), 1e-4, 1e-4, true)) << i;
    EXPECT_TRUE(allclose(most, x.amax({-1}), 0, 0, true)) << i;
  }
  EXPECT_EQ(compiled.stats().kernel_calls, 1);
}

TEST(Fusion, RowsWithoutElements) {
  const auto f = [](const Tensor& x) { return x.sum({-1}) + 1; };
  plan_of(f, drawn({80, 0}, 47));
  plan_of(f, drawn({0, 80}, 48));
}

TEST(Fusion, ExactModeKeepsTheBitsOfRows) {
  const Tensor labels = randint(0, 50, {80}, kInt64, {}, Generator(50)).to(test_device());
  auto compiled = compile([&](const Tensor& x) { return row_losses(x * 2, labels); },
                          {.mode = CompileMode::kExact});
  const Tensor x = drawn({80, 50}, 49);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(equal(compiled(x), row_losses(x * 2, labels)));
}

TEST(Fusion, FewOrLongRowsAreReducedByKernelsOfTheirOwn) {
  EXPECT_GT(plan_of(softmax_of, drawn({3, 50}, 14)).kernel_calls, 1);
  EXPECT_GT(plan_of(softmax_of, drawn({80, 50}, 15), CompileMode::kExact).kernel_calls, 1);
}

TEST(Fusion, AnErrorOfOneCallIsThatOfTheFusedOne) {
  auto compiled =
      compile([](const Tensor& x, const Tensor& y) { return floor_divide(x + 1, y) * 2; });
  if (!test_device().is_cpu()) GTEST_SKIP() << "a GPU reports such an error later";
  const Tensor x = full({9}, 7, kInt64), y = full({9}, 2, kInt64);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(equal(compiled(x, y), full({9}, 8, kInt64)));
  try {
    compiled(x, zeros({9}, kInt64));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kValue);
    EXPECT_NE(std::string(error.what()).find("division by zero"), std::string::npos);
  }
}

// Sizes around those of vectors and tiles; operations that are rounded once if not exact.
TEST(Fusion, ChainsOfAnySizeAreExactOrClose) {
  const auto f = [](const Tensor& x) {
    const Tensor y = relu(x * 1.5 - x.abs()) + sqrt(x * x + 0.25);
    return where(y > 1, exp(y * -0.5) * x, maximum(y, x) / (y + 2));
  };
  for (const int64_t n : {1, 7, 8, 15, 16, 17, 100, 1023, 1025, 3000, 70000}) {
    const Tensor x = drawn({n}, static_cast<uint64_t>(n));
    auto exact = compile(f, {.mode = CompileMode::kExact});
    auto close = compile(f);
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(equal(exact(x), f(x))) << n;
      EXPECT_TRUE(allclose(close(x), f(x), 1e-6, 1e-6)) << n;
    }
    EXPECT_EQ(close.stats().kernel_calls, 1);
  }
}

// Returns a function with programs of its own for each number.
auto with_number(double n) {
  return [n](const Tensor& x) { return tanh(x / n) * 0.5 - n; };
}

// Runs such a function often enough to replay.
void expect_number(size_t n, const Tensor& x) {
  const auto f = with_number(static_cast<double>(n));
  auto compiled = compile(f);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(allclose(compiled(x), f(x), 1e-5, 1e-4)) << n;
  EXPECT_EQ(compiled.stats().kernel_calls, 1);
}

TEST(Fusion, AThousandNumbersHoldFewOperators) {
  const Tensor x = drawn({3, 40}, 1);
  const auto f = with_number(0.75);
  auto kept = compile(f);
  for (int i = 0; i < 3; ++i) kept(x);
  const size_t before = graph::FusedOp::count();
  size_t most = 0;
  for (size_t n = 2; n < 1002; ++n) {
    expect_number(n, x);
    most = std::max(most, graph::FusedOp::count());
  }
  EXPECT_LE(most, before + graph::FusedOp::kKept + 2);
  // The program of a plan stays, though others were asked for since.
  EXPECT_TRUE(allclose(kept(x), f(x), 1e-5, 1e-4));
}

TEST(Fusion, ProfilesNameOperatorsThatAreGone) {
  const Tensor x = drawn({3, 40}, 1);
  profiler::Profile profile;
  expect_number(7000, x);
  profile.stop();
  for (size_t n = 1; n <= graph::FusedOp::kKept; ++n) expect_number(7000 + n, x);
  const std::vector<profiler::KernelTime> times = profile.times();
  EXPECT_TRUE(std::any_of(times.begin(), times.end(), [](const profiler::KernelTime& each) {
    return each.op == "fused_div_tanh_mul_sub" && each.kernel == "program" && each.calls == 1;
  })) << profile.table();
}

TEST(Fusion, OperatorsLeaveOnAnyThread) {
  const Tensor x = drawn({3, 40}, 1);
  const size_t before = graph::FusedOp::count();
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&x, t] {
      for (size_t n = 0; n < 150; ++n) expect_number(5000 + n + t % 2 * 150, x);
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_LE(graph::FusedOp::count(), before + graph::FusedOp::kKept);
}

TEST(Fusion, CanBeLeftOut) {
  setenv("MYTORCH_COMPILE_WITHOUT", "fusion", 1);
  const auto f = [](Tensor x) {
    x.mul_(3);
    return where(x > 0, x * 1.25 + 0.5, x - 2);
  };
  const CompileStats stats = plan_of(f, drawn({3, 5}, 20), CompileMode::kExact);
  unsetenv("MYTORCH_COMPILE_WITHOUT");
  EXPECT_EQ(stats.kernel_calls, 6);
  EXPECT_EQ(stats.fused, 0);
}

TEST(Fusion, AnArgumentMayShareMemoryWithATensorFromOutside) {
  const Tensor all = drawn({2, 6}, 19), weight = all.narrow(0, 1, 1);
  auto compiled = compile([&](const Tensor& x) {
    return cumsum(cumsum(cumsum(cumsum(x * weight, 0), 0), 0), 0);  // enough for a device graph
  });
  for (int i = 0; i < 5; ++i) {
    const Tensor x = all.narrow(0, 0, 1);
    EXPECT_TRUE(allclose(compiled(x), x * weight)) << i;
  }
}

}  // namespace
}  // namespace mytorch
