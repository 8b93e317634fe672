// What passes leave of a graph.
#include "graph/passes/passes.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/rewrite.h"

namespace mytorch {
namespace {

// Returns how often an operator occurs in the graph of a function of one tensor.
template <class F>
int count_of(const std::string& op, F f) {
  auto compiled = compile(f, {.mode = CompileMode::kExact});
  const Tensor x = randn({4, 5}, kFloat32, {}, Generator(1));
  for (int i = 0; i < 3; ++i) {
    const Tensor own = x.clone(), eager = x.clone();
    const Tensor found = compiled(own);
    EXPECT_TRUE(equal(found, f(eager)));
    EXPECT_TRUE(equal(own, eager));
  }
  const std::string text = compiled.text();
  int count = 0;
  for (size_t at = text.find(" " + op + "("); at != std::string::npos;
       at = text.find(" " + op + "(", at + 1)) {
    ++count;
  }
  return count;
}

// Each part has its place in one tensor, in the recording as in eager mode, where the signs of
// zeros tell.
TEST(Passes, GradientsOfPartsNeedNoZeros) {
  const auto f = [](const Tensor& x) {
    const Tensor own = x.detach().clone().requires_grad_();
    Tensor loss;
    for (const Tensor& part : own.chunk(4, 0)) {
      const Tensor column = part.select(1, 2).exp().sum();
      const Tensor whole = (part * -0.0).sum();  // the last one, and so the first in backward
      loss = loss.defined() ? loss + column + whole : column + whole;
    }
    return 1.0 / autograd::grad({loss}, {own})[0];
  };
  EXPECT_EQ(count_of("fill_", f), 0);
}

// The gradient of a tensor of which every part is written is copied once.
TEST(Passes, GradientsOfWrittenPartsAreCopiedOnce) {
  const auto f = [](const Tensor& x) {
    const Tensor own = x.detach().clone().requires_grad_();
    const Tensor steps = zeros({4, 5});
    for (int64_t t = 0; t < 4; ++t) steps.select(0, t).copy_(own.select(0, t).exp());
    return autograd::grad({steps.sum()}, {own})[0];
  };
  // Its parts, and those of `own`: nobody reads the steps.
  EXPECT_EQ(count_of("copy_", f), 4 + 4);
}

TEST(Passes, EqualValuesAreComputedOnce) {
  EXPECT_EQ(count_of("tanh", [](const Tensor& x) { return tanh(x) * tanh(x); }), 1);
  EXPECT_EQ(count_of("matmul", [](const Tensor& x) { return x; }), 0);
  EXPECT_EQ(
      count_of("mm", [](const Tensor& x) { return matmul(x, x.t()) + exp(matmul(x, x.t())); }), 1);
  // Other numbers are other values.
  EXPECT_EQ(count_of("add.Tensor", [](const Tensor& x) { return (x + 1) * (x + 1.5); }), 2);
}

TEST(Passes, EqualCopiesAreMadeOnce) {
  const auto casts = [](const Tensor& x) {
    const Tensor y = tanh(x);
    return y.to(kBFloat16) * y.to(kBFloat16).sin() + y.to(kFloat16);
  };
  EXPECT_EQ(count_of("copy_", casts), 2);
  const auto orders = [](const Tensor& x) {
    return x.t().contiguous().view({20}) + exp(x.t().contiguous().view({20})) + x.view({20});
  };
  EXPECT_EQ(count_of("copy_", orders), 1);
  // One is written, or what they copy has changed, or both are results.
  const auto written = [](const Tensor& x) {
    Tensor a = x.to(kFloat64);
    const Tensor b = x.to(kFloat64);
    a.add_(1);
    return a * b;
  };
  EXPECT_EQ(count_of("copy_", written), 2);
  const auto changed = [](Tensor x) {
    const Tensor a = x.to(kFloat64);
    x.add_(1);
    return a * x.to(kFloat64);
  };
  EXPECT_EQ(count_of("copy_", changed), 2);
  auto two = compile([](const Tensor& x) { return std::tuple(x.to(kFloat64), x.to(kFloat64)); });
  for (int i = 0; i < 4; ++i) {
    auto [a, b] = two(ones({3}));
    a.fill_(5);
    EXPECT_EQ(b[0].item<double>(), 1);
  }
}

TEST(Passes, ValuesThatAreWrittenAreNotMerged) {
  EXPECT_EQ(count_of("tanh",
                     [](Tensor x) {
                       const Tensor before = tanh(x);
                       x.add_(1);
                       return before * tanh(x);
                     }),
            2);
  EXPECT_EQ(count_of("tanh",
                     [](const Tensor& x) {
                       Tensor a = tanh(x);
                       const Tensor b = tanh(x);
                       a.mul_(2);
                       return a + b;
                     }),
            2);
  EXPECT_EQ(count_of("tanh",
                     [](const Tensor& x) {
                       const Tensor a = tanh(x);
                       a.narrow(0, 0, 1).zero_();
                       return a + tanh(x);
                     }),
            2);
}

TEST(Passes, RandomNumbersAreNotMerged) {
  auto compiled = compile([](const Tensor& x) { return rand_like(x) - rand_like(x); });
  const Tensor x = zeros({50});
  for (int i = 0; i < 3; ++i) EXPECT_GT(compiled(x).abs().sum().item<float>(), 1);
}

TEST(Passes, ResultsStayApart) {
  auto compiled = compile([](const Tensor& x) { return std::tuple(x + 1, x + 1); });
  for (int i = 0; i < 3; ++i) {
    auto [a, b] = compiled(zeros({3}));
    a.fill_(5);
    EXPECT_EQ(b[0].item<float>(), 1);
  }
}

TEST(Passes, WhatNothingUsesIsDropped) {
  EXPECT_EQ(count_of("exp",
                     [](const Tensor& x) {
                       const Tensor unused = exp(x);
                       matmul(unused, unused.t());
                       return x + 1;
                     }),
            0);
  // A write to an argument is used.
  EXPECT_EQ(count_of("exp",
                     [](Tensor x) {
                       x.copy_(exp(x) * 0.5);
                       return x + 1;
                     }),
            1);
}

// ---- constants

template <class F>
int64_t fired(const std::string& name, CompileMode mode, F f, const Tensor& x) {
  auto compiled = compile(f, {.mode = mode});
  const bool exact = mode == CompileMode::kExact;
  for (int i = 0; i < 4; ++i) {
    const Tensor own = x.clone(), eager = x.clone();
    const Tensor found = compiled(own), expected = f(eager);
    EXPECT_EQ(found.dtype(), expected.dtype());
    EXPECT_TRUE(found.strides() == expected.strides());
    if (exact) {
      EXPECT_TRUE(equal(found.isnan(), expected.isnan())) << compiled.text();
      EXPECT_TRUE(equal(where(isnan(found), 0, found), where(isnan(expected), 0, expected)));
      if (found.is_floating_point()) {
        EXPECT_TRUE(equal(signbit(found), signbit(expected))) << compiled.text();
      }
    } else {
      EXPECT_TRUE(allclose(found, expected, 1e-5, 1e-6, true)) << compiled.text();
    }
    EXPECT_TRUE(equal(where(isnan(own), 0, own), where(isnan(eager), 0, eager)));
  }
  const auto stats = compiled.stats().rewritten;
  const auto at = stats.find(name);
  return at == stats.end() ? 0 : at->second;
}

constexpr CompileMode kExact = CompileMode::kExact, kFast = CompileMode::kFast;

// Values at which identities of real numbers do not hold.
Tensor special(ScalarType dtype = kFloat32) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  return tensor({{0.f, -0.f, 1.5f}, {NAN, kInf, -kInf}}).to(dtype);
}

TEST(Folding, ConstantsAreComputedOnce) {
  const auto f = [](const Tensor& x) {
    const Tensor scale = exp(arange(3).to(kFloat32) * 0.5) + full({3}, 2.0);
    return x * scale + zeros({3});
  };
  EXPECT_GE(fired("constant-folding", kExact, f, special()), 6);
  EXPECT_EQ(count_of("exp", [](const Tensor& x) { return x + exp(ones({5})); }), 0);
}

TEST(Folding, WhatChangesOrLeavesIsNot) {
  // A result is fresh memory, and so is what is written.
  EXPECT_EQ(count_of("exp", [](const Tensor&) { return exp(ones({4, 5})); }), 1);
  const auto written = [](const Tensor& x) {
    Tensor sum = zeros({5});
    for (int i = 0; i < 2; ++i) sum.add_(x[i]);
    return sum + x;
  };
  EXPECT_EQ(fired("constant-folding", kExact, written, randn({4, 5}, kFloat32, {}, Generator(3))),
            0);
  const Tensor outside = ones({5});
  auto compiled = compile([&](const Tensor& x) { return x + exp(outside); }, {.mode = kExact});
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(equal(compiled(zeros({5})), exp(outside)));
    outside.add_(1);
  }
  EXPECT_EQ(
      fired(
          "constant-folding", kExact, [](const Tensor& x) { return x + rand({3}, kFloat32) * 0; },
          special().nan_to_num()),
      0);
  // Larger than it is worth.
  EXPECT_EQ(fired(
                "constant-folding", kExact,
                [](const Tensor& x) {
                  return x + zeros({100, 1000}).sum() + x.sum();
                },
                randn({2, 2}, kFloat32, {}, Generator(3))),
            0);
}

// ---- algebra

TEST(Algebra, IdentitiesThatKeepEveryBit) {
  for (const ScalarType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    const Tensor x = special(dtype);
    EXPECT_EQ(fired(
                  "algebra: x * 1", kExact, [](const Tensor& x) { return tanh(x * 1); }, x),
              1);
    EXPECT_EQ(fired(
                  "algebra: x / 1", kExact, [](const Tensor& x) { return tanh(x / 1); }, x),
              1);
    EXPECT_EQ(fired(
                  "algebra: x - 0", kExact, [](const Tensor& x) { return tanh(x - 0); }, x),
              1);
    EXPECT_EQ(fired(
                  "algebra: x + -0", kExact, [](const Tensor& x) { return tanh(x + -0.0); }, x),
              1);
    EXPECT_EQ(fired(
                  "algebra: - - x", kExact, [](const Tensor& x) { return tanh(-(-x)); }, x),
              1);
    EXPECT_EQ(
        fired(
            "algebra: relu(relu(x))", kExact, [](const Tensor& x) { return relu(relu(x)); }, x),
        1);
  }
}

TEST(Algebra, APowerIsAccurateButNotExact) {
  const auto f = [](const Tensor& x) { return tanh(pow(x, 1)); };
  EXPECT_EQ(fired("algebra: x ** 1", kExact, f, special()), 0);
  EXPECT_EQ(fired("algebra: x ** 1", CompileMode::kDefault, f, special()), 1);
}

TEST(Algebra, MinusZeroPlusZeroIsZero) {
  const auto f = [](const Tensor& x) { return 1 / (x + 0); };
  EXPECT_EQ(fired("algebra: x + 0", kExact, f, special()), 0);
  EXPECT_EQ(fired("algebra: x + 0", CompileMode::kDefault, f, special()), 0);
  EXPECT_EQ(fired(
                "algebra: x + 0", kFast, [](const Tensor& x) { return tanh(x + 0); }, special()),
            1);
  EXPECT_EQ(fired(
                "algebra: x + 0 of integers", kExact,
                [](const Tensor& x) { return (x.to(kInt32) + 0) * 3; }, ones({3})),
            1);
  // x - -0.0 is x + 0.
  EXPECT_EQ(
      fired(
          "algebra: x - 0", kExact, [](const Tensor& x) { return 1 / (x - -0.0); }, special()),
      0);
}

TEST(Algebra, WhatChangesTheTypeOrTheMemoryStays) {
  const auto to_float = [](const Tensor& x) { return tanh(x.to(kInt32) * 1.0); };
  EXPECT_EQ(fired("algebra: x * 1", kExact, to_float, ones({3})), 0);
  // The imaginary part of 1 is a number, too.
  const auto complex = [](const Tensor& x) { return abs(x.to(kComplex64) * 1); };
  EXPECT_EQ(fired("algebra: x * 1", kExact, complex, ones({3})), 0);
  // A result is no argument.
  EXPECT_EQ(fired(
                "algebra: x * 1", kExact, [](const Tensor& x) { return x * 1; }, special()),
            0);
  const auto writes = [](Tensor x) {
    const Tensor before = x * 1;
    x.add_(2);
    return before * x;
  };
  EXPECT_EQ(fired("algebra: x * 1", kExact, writes, special()), 0);
  const auto writes_it = [](const Tensor& x) {
    Tensor y = x * 1;
    y.add_(2);
    return y * x;
  };
  EXPECT_EQ(fired("algebra: x * 1", kExact, writes_it, special()), 0);
}

TEST(Algebra, CastsThatWidenAndNarrowBack) {
  const auto through = [](ScalarType wide) {
    return [wide](const Tensor& x) { return tanh(x.to(wide).to(x.dtype())); };
  };
  EXPECT_EQ(fired("algebra: casts", kExact, through(kFloat64), special()), 1);
  EXPECT_EQ(fired("algebra: casts", kExact, through(kFloat32), special(kBFloat16)), 1);
  EXPECT_EQ(fired("algebra: casts", kExact, through(kFloat32), special(kFloat16)), 1);
  // These lose digits.
  EXPECT_EQ(fired("algebra: casts", kExact, through(kBFloat16), special()), 0);
  EXPECT_EQ(fired("algebra: casts", kExact, through(kBFloat16), special(kFloat16)), 0);
  EXPECT_EQ(fired("algebra: casts", kExact, through(kFloat16), special(kBFloat16)), 0);
  const auto written = [](const Tensor& x) {
    Tensor wide = x.to(kFloat64);
    wide.add_(1e-12);
    return tanh(wide.to(kFloat32));
  };
  EXPECT_EQ(fired("algebra: casts", kExact, written, special()), 0);
}

TEST(Algebra, ViewsThatGiveWhatThereIsAreDropped) {
  const auto f = [](const Tensor& x) {
    return x.t().t().expand(x.sizes()).reshape({6}).reshape({2, 3}) + 1;
  };
  EXPECT_GE(fired("algebra: views", kExact, f, special()), 2);
}

// ---- copies

TEST(Copies, OfWhatStaysAsItIsAreDropped) {
  const auto f = [](const Tensor& x) { return tanh(x.clone()) + x; };
  EXPECT_EQ(fired("view-copies", kExact, f, special()), 1);
  const auto part = [](const Tensor& x) { return tanh(x.narrow(0, 1, 1).clone()[0]); };
  EXPECT_EQ(fired("view-copies", kExact, part, special()), 1);
  // The copied value becomes the result.
  EXPECT_EQ(fired(
                "view-copies", kExact, [](const Tensor& x) { return tanh(x).clone(); }, special()),
            1);
}

TEST(Copies, OntoThemselvesAreDropped) {
  const auto f = [](Tensor x) {
    x.copy_(x);
    const Tensor copy = x.clone();
    x.add_(x, 0.5);
    return copy;
  };
  EXPECT_EQ(fired("view-copies", kExact, f, special()), 1);
  const auto shifted = [](Tensor x) {
    x.narrow(0, 0, 1).copy_(x.narrow(0, 1, 1));
    return x + 1;
  };
  EXPECT_EQ(fired("view-copies", kExact, shifted, special()), 0);
}

TEST(Copies, OfWhatChangesStay) {
  const auto before = [](Tensor x) {
    const Tensor copy = x.clone();
    x.add_(1);
    return copy * x;
  };
  EXPECT_EQ(fired("view-copies", kExact, before, special()), 0);
  const auto written = [](const Tensor& x) {
    Tensor copy = x.clone();
    copy.add_(1);
    return copy * x;
  };
  EXPECT_EQ(fired("view-copies", kExact, written, special()), 0);
  // A complex number does not begin between two parts of others.
  const auto shifted = [](const Tensor& x) {
    return abs(view_as_complex(x.narrow(0, 1, 4).clone().view({2, 2})));
  };
  EXPECT_EQ(fired("view-copies", kExact, shifted, arange(6).to(kFloat32)), 0);
  const auto other_order = [](const Tensor& x) { return x.t().contiguous() + 1; };
  EXPECT_EQ(fired("view-copies", kExact, other_order, special()), 0);
  EXPECT_EQ(fired(
                "view-copies", kExact, [](const Tensor& x) { return x.clone(); }, special()),
            0);
  // The last reader writes what was copied.
  const auto last = [](Tensor x) {
    const Tensor copy = x.clone();
    x.narrow(0, 0, 1).mul_(copy.narrow(0, 1, 1));
    return x * 2;
  };
  EXPECT_EQ(fired("view-copies", kExact, last, special()), 0);
  auto two = compile([](const Tensor& x) {
    const Tensor y = tanh(x);
    return std::tuple(y, y.clone());
  });
  for (int i = 0; i < 4; ++i) {
    auto [a, b] = two(special());
    a.fill_(5);
    EXPECT_NE(b[0][2].item<float>(), 5);
  }
}

TEST(Passes, WritesThatNothingReadsAreDropped) {
  EXPECT_EQ(count_of("copy_",
                     [](const Tensor& x) {
                       Tensor unused = x.to(kFloat64);
                       unused.add_(1);
                       return x + 1;
                     }),
            0);
}

TEST(Passes, StatsSayHowLongEachTook) {
  auto f = compile([](const Tensor& x) { return tanh(x) * 2; });
  f(special());
  EXPECT_EQ(f.stats().seconds.size(), 1);
  EXPECT_GT(f.stats().seconds.at("record"), 0);
  f(special());
  std::map<std::string, double> seconds = f.stats().seconds;
  EXPECT_GT(seconds.at("plan"), 0);
  for (const graph::Pass& pass : graph::passes()) EXPECT_EQ(seconds.count(pass.name), 1);
  EXPECT_EQ(seconds.size(), graph::passes().size() + 2);
}

TEST(Passes, EachCanBeDisabled) {
  const auto f = [](const Tensor& x) {
    return tanh(x.clone() * 1) + exp(ones({3})) + x * sigmoid(x);
  };
  setenv("MYTORCH_COMPILE_WITHOUT", "algebra,view-copies,rewrite,constant-folding", 1);
  auto without = compile(f);
  for (int i = 0; i < 3; ++i) without(special());
  unsetenv("MYTORCH_COMPILE_WITHOUT");
  EXPECT_TRUE(without.stats().rewritten.empty());
  auto with = compile(f);
  for (int i = 0; i < 3; ++i) with(special());
  EXPECT_EQ(with.stats().rewritten.size(), 4);
  for (const graph::CompilePass& pass : graph::compile_passes()) {
    setenv("MYTORCH_COMPILE_WITHOUT", pass.name.c_str(), 1);
    ::testing::internal::CaptureStderr();
    auto less = compile(f, {.mode = CompileMode::kExact});
    const Tensor x = special().nan_to_num();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(equal(less(x), f(x))) << pass.name;
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << pass.name;
  }
  setenv("MYTORCH_COMPILE_WITHOUT", "algebra,fussion", 1);
  ::testing::internal::CaptureStderr();
  auto wrong = compile(f);
  for (int i = 0; i < 3; ++i) wrong(special());
  const std::string told = ::testing::internal::GetCapturedStderr();
  unsetenv("MYTORCH_COMPILE_WITHOUT");
  EXPECT_TRUE(absl::StrContains(told, "nothing is called 'fussion'; there are constant-folding"))
      << told;
}

TEST(Passes, EachDumpsByItsName) {
  const auto dumped = [](const char* names) {
    setenv("MYTORCH_COMPILE_DUMP", names, 1);
    ::testing::internal::CaptureStderr();
    auto compiled = compile([](const Tensor& x) { return tanh(x.clone() * 1); });
    for (int i = 0; i < 3; ++i) compiled(special());
    unsetenv("MYTORCH_COMPILE_DUMP");
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(dumped("0"), "");
  EXPECT_TRUE(absl::StrContains(dumped("algebra"), "[compile] algebra: "));
  EXPECT_FALSE(absl::StrContains(dumped("algebra"), "view-copies"));
  const std::string two = dumped("algebra,fusion"), all = dumped("1");
  EXPECT_TRUE(absl::StrContains(two, "[compile] alone: tanh")) << two;
  EXPECT_TRUE(absl::StrContains(all, "[compile] view-copies: ")) << all;
}

}  // namespace
}  // namespace mytorch
