// Operators that could compute with temporaries much larger than their operands and results: what
// they give, and the memory that they take.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mytorch/autograd.h"
#include "mytorch/autograd/gradcheck.h"
#include "mytorch/generator.h"
#include "mytorch/ops.h"
#include "tests/autograd/peak_memory.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// ---- draws ----

TEST(Multinomial, DrawsWithReplacementTakeTheMemoryOfWeightsAndDraws) {
  const Tensor weights = rand({20000}, kFloat32, {}, Generator(1));
  const int64_t grown = growth([&] { multinomial(weights, 40000, true, Generator(2)); });
  if (grown < 0) GTEST_SKIP() << "this system does not tell the peak";
  EXPECT_LT(grown, 16 * kMiB);
}

TEST(Multinomial, DrawsAreInProportionToTheWeights) {
  const Tensor weights = tensor({1.0, 0.0, 3.0, 0.0, 4.0, 0.0}, kFloat32);
  const Tensor draws = multinomial(weights, 80000, true, Generator(3));
  const Values counts = values(bincount(draws, {}, 6));
  const double expected[] = {10000, 0, 30000, 0, 40000, 0};
  // Five standard deviations of the largest count.
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(counts[i], expected[i], expected[i] == 0 ? 0 : 710) << i;
}

TEST(Multinomial, EachRowHasItsOwnWeights) {
  const Tensor draws = multinomial(eye(5, kFloat64), 3, true, Generator(4));
  EXPECT_EQ(values(draws), (Values{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}));
}

TEST(Multinomial, WeightsMayBeAsSmallOrLargeAsTheirType) {
  for (const double scale : {1e-310, 8e307}) {
    const Tensor weights = tensor({0.0, 1.0, 1.0, 0.0}, kFloat64) * scale;
    const Values counts = values(bincount(multinomial(weights, 4000, true, Generator(5)), {}, 4));
    EXPECT_EQ(counts[0] + counts[3], 0) << scale;
    EXPECT_NEAR(counts[1], 2000, 160) << scale;
  }
}

// ---- search ----

TEST(SearchSorted, CountsWhatPrecedesInAnyOrderOfTheElements) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> line, elements = {nan, -1, 0, 1e9};
  for (int i = 0; i < 300; ++i) line.push_back(i / 3);
  for (int i = 0; i < 200; ++i) elements.push_back(i * 37 % 101 / 2.0);
  for (int i = 0; i < 200; ++i) elements.push_back(i / 2.0);  // in order
  Values before, after;
  for (const double x : elements) {
    before.push_back(std::isnan(x) ? 300
                                   : std::lower_bound(line.begin(), line.end(), x) - line.begin());
    after.push_back(std::isnan(x) ? 302
                                  : std::upper_bound(line.begin(), line.end(), x) - line.begin());
  }
  line.insert(line.end(), {nan, nan});
  for (const ScalarType type : {kFloat64, kFloat32, kFloat16}) {
    const Tensor sorted = plain(line).to(type), x = plain(elements).to(type);
    EXPECT_EQ(values(searchsorted(sorted, x)), before) << dtype_name(type);
    EXPECT_EQ(values(searchsorted(sorted, x, true, true)), after) << dtype_name(type);
    EXPECT_EQ(values(searchsorted(sorted, x, false, false, "right")), after) << dtype_name(type);
  }
}

TEST(SearchSorted, EveryRowIsSearchedInItsOwn) {
  const Tensor rows = tensor({1.0, 2.0, 3.0, 10.0, 20.0, 30.0}, kFloat32).reshape({2, 3});
  const Tensor x = tensor({2.0, 25.0, 2.0, 25.0}, kFloat32).reshape({2, 2});
  EXPECT_EQ(values(searchsorted(rows, x)), (Values{1, 3, 0, 2}));
  const Tensor columns = rows.t().contiguous().t();
  EXPECT_EQ(values(searchsorted(columns, x, true)), (Values{1, 3, 0, 2}));
}

TEST(RepeatInterleave, NumbersOfRepeatsMayBeZero) {
  const Tensor repeats = tensor(std::vector<int64_t>{0, 2, 0, 0, 3, 1, 0});
  EXPECT_EQ(values(repeat_interleave(repeats)), (Values{1, 1, 4, 4, 4, 5}));
}

// ---- distances ----

TEST(Cdist, IsExactFarFromZero) {
  const Tensor x = tensor({1e6, 1e6, 1e6 + 3, 1e6 + 4}, kFloat32).reshape({2, 2});
  EXPECT_EQ(values(cdist(x, x)), (Values{0, 5, 5, 0}));
  EXPECT_EQ(values(cdist(x, x, 1)), (Values{0, 7, 7, 0}));
  EXPECT_EQ(values(cdist(x, x, INFINITY)), (Values{0, 4, 4, 0}));
  EXPECT_EQ(values(cdist(x, x, 0)), (Values{0, 2, 2, 0}));
  EXPECT_EQ(values(pdist(x)), (Values{5}));
}

TEST(Cdist, DifferencesNeverExistAsAWhole) {
  const Tensor x = randn({512, 256}, kFloat32, {}, Generator(6)).requires_grad_();
  const Tensor y = randn({512, 256}, kFloat32, {}, Generator(7)).requires_grad_();
  for (const double p : {0.0, 1.0, 2.0, 3.0, double{INFINITY}}) {
    const int64_t grown = growth([&] { cdist(x, y, p).sum().backward(); });
    if (grown < 0) GTEST_SKIP() << "this system does not tell the peak";
    EXPECT_LT(grown, 32 * kMiB) << p;  // the differences take 256 MiB
  }
  EXPECT_LT(growth([&] { pdist(x).sum().backward(); }), 32 * kMiB);
}

TEST(Cdist, DifferencesOfComplexNumbersNeverExistAsAWhole) {
  NoGradGuard no_grad;
  const Tensor x = randn({512, 64}, kComplex64, {}, Generator(8));
  const int64_t grown = growth([&] { cdist(x, x); });
  if (grown < 0) GTEST_SKIP() << "this system does not tell the peak";
  EXPECT_LT(grown, 64 * kMiB);  // the differences take 128 MiB
}

// A sum of norms over pairs, whose sizes are not multiples of anything.
TEST(Cdist, IsTheNormOfEachDifference) {
  for (const double p : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, double{INFINITY}}) {
    for (const ScalarType type : {kFloat64, kFloat32, kFloat16}) {
      const Tensor x = randn({2, 1, 7, 13}, kFloat64, {}, Generator(9)).to(type).requires_grad_();
      const Tensor y = randn({3, 45, 13}, kFloat64, {}, Generator(10)).to(type).requires_grad_();
      const Tensor found = cdist(x, y, p);
      ASSERT_EQ(found.sizes().vec(), (std::vector<int64_t>{2, 3, 7, 45}));
      const Tensor u = x.detach().to(kFloat64).requires_grad_();
      const Tensor v = y.detach().to(kFloat64).requires_grad_();
      const Tensor expected = linalg_vector_norm(u.unsqueeze(-2) - v.unsqueeze(-3), p, {-1});
      // Near zeros, gradients for p < 1 are large and cancel.
      const double unit = type == kFloat64 ? 1e-12 : type == kFloat32 ? 2e-5 : 4e-3;
      const double limit = p > 0 && p < 1 ? 10 * unit : unit;
      const auto differs = [](const Tensor& a, const Tensor& b) {
        return ((a.to(kFloat64) - b).abs() / (b.abs() + 1)).max().item<double>();
      };
      EXPECT_LT(differs(found, expected), limit) << p << dtype_name(type);
      const Tensor seed = rand(found.sizes(), kFloat64, {}, Generator(11)).to(type);
      found.backward(seed);
      expected.backward(seed.to(kFloat64));
      EXPECT_LT(differs(x.grad(), u.grad()), 2 * limit) << p << dtype_name(type);
      EXPECT_LT(differs(y.grad(), v.grad()), 2 * limit) << p << dtype_name(type);
    }
  }
}

// The second operand begins where the first one does, and is longer.
TEST(Cdist, TakesARowAndTheMatrixThatItBegins) {
  for (const ScalarType type : {kFloat32, kFloat16, kBFloat16}) {
    const Tensor x = randn({300, 40}, kFloat64, {}, Generator(25)).to(type);
    const Tensor expected = cdist(x.to(kFloat64), x.to(kFloat64)).narrow(0, 0, 1);
    const Tensor found = cdist(x.narrow(0, 0, 1), x);
    EXPECT_TRUE(allclose(found.to(kFloat64), expected, 2e-2, 2e-2)) << dtype_name(type);
  }
}

TEST(Cdist, HasSecondDerivatives) {
  const Tensor x = randn({3, 4}, kFloat64, {}, Generator(12)).requires_grad_();
  const Tensor y = randn({2, 5, 4}, kFloat64, {}, Generator(13)).requires_grad_();
  for (const double p : {1.0, 1.5, 2.0, 3.0, double{INFINITY}}) {
    const auto f = [&](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{cdist(in[0], in[1], p)};
    };
    EXPECT_EQ(autograd::gradcheck(f, {x, y}).message, "") << p;
    EXPECT_EQ(autograd::gradgradcheck(f, {x, y}).message, "") << p;
    const auto g = [&](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{pdist(in[0], p)};
    };
    EXPECT_EQ(autograd::gradgradcheck(g, {x}).message, "") << p;
  }
}

TEST(Cdist, EqualRowsHaveNoGradient) {
  for (const double p : {0.5, 1.0, 1.5, 2.0, 3.0, double{INFINITY}}) {
    const Tensor x = ones({2, 3}).requires_grad_();
    cdist(x, ones({1, 3}), p).sum().backward();
    EXPECT_EQ(values(x.grad()), Values(6, 0.0)) << p;
  }
}

TEST(Pdist, IsTheUpperTriangleOfTheDistances) {
  // More rows than a block has.
  const Tensor x = randn({700, 3}, kFloat32, {}, Generator(14));
  const Tensor upper = triu_indices(700, 700, 1);
  const Tensor expected = cdist(x, x).index({upper[0], upper[1]});
  EXPECT_TRUE(equal(pdist(x), expected));
  for (const double p : {1.0, 2.0, 3.0}) {
    const Tensor weights = randn({700 * 699 / 2}, kFloat32, {}, Generator(15));
    const Tensor u = x.clone().requires_grad_(), v = x.clone().requires_grad_();
    pdist(u, p).backward(weights);
    cdist(v, v, p).index({upper[0], upper[1]}).backward(weights);
    EXPECT_TRUE(allclose(u.grad(), v.grad(), 1e-4, 1e-3)) << p;
  }
  EXPECT_EQ(pdist(x.narrow(0, 0, 1)).numel(), 0);
  EXPECT_EQ(pdist(x.narrow(0, 0, 0)).numel(), 0);
}

// ---- scattered reductions ----

TEST(ScatterReduce, ExtremaAndProductsOfTypesAndLines) {
  const Tensor index = randint(0, 7, {5, 40}, kInt64, {}, Generator(15));
  for (const ScalarType type : {kFloat64, kFloat16, kInt32, kUInt8}) {
    const Tensor src = randint(1, 3, {5, 40}, kInt64, {}, Generator(16)).to(type);
    const Tensor self = randint(1, 5, {5, 7}, kInt64, {}, Generator(17)).to(type);
    for (const char* reduce : {"amax", "amin", "prod"}) {
      for (const bool include : {true, false}) {
        Values expected = values(self);
        std::vector<bool> seen(35, include);
        const Values at = values(index), x = values(src);
        for (int i = 0; i < 200; ++i) {
          const size_t to = static_cast<size_t>(i / 40 * 7 + static_cast<int>(at[i]));
          double& e = expected[to];
          e = !seen[to]          ? x[i]
              : reduce[0] == 'p' ? e * x[i]
              : reduce[2] == 'a' ? std::max(e, x[i])
                                 : std::min(e, x[i]);
          seen[to] = true;
        }
        if (type == kUInt8) {
          for (double& e : expected) e = std::fmod(e, 256);
        }
        const Tensor rows = scatter_reduce(self, 1, index, src, reduce, include);
        EXPECT_EQ(values(rows), expected) << reduce << dtype_name(type) << include;
        const Tensor columns =
            scatter_reduce(self.t().contiguous(), 0, index.t(), src.t(), reduce, include);
        EXPECT_EQ(values(columns.t()), expected) << reduce << dtype_name(type) << include;
      }
    }
  }
}

TEST(ScatterReduce, ALongLineTakesTheMemoryOfItsOperands) {
  const Tensor index = randint(0, 1 << 20, {1 << 20}, kInt64, {}, Generator(18));
  const Tensor src = rand({1 << 20}, kFloat32, {}, Generator(19));
  for (const char* reduce : {"amax", "prod"}) {
    const int64_t grown = growth([&] { scatter_reduce(src, 0, index, src, reduce); });
    if (grown < 0) GTEST_SKIP() << "this system does not tell the peak";
    EXPECT_LT(grown, 12 * kMiB) << reduce;  // src has 4
  }
}

TEST(ScatterReduce, NaNIsTheExtremum) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor index = tensor(std::vector<int64_t>{0, 0, 1});
  for (const char* reduce : {"amax", "amin"}) {
    const Tensor result = scatter_reduce(plain({0, nan}), 0, index, plain({nan, 1, 2}), reduce);
    EXPECT_TRUE(std::isnan(values(result)[0]) && std::isnan(values(result)[1])) << reduce;
  }
}

// ---- others ----

// Memory that is kept for later calls hides a part of the second of two functions, so the most
// demanding one of each kind is first.
TEST(Temporaries, AreNotMuchLargerThanOperandsAndResults) {
  NoGradGuard no_grad;
  const Tensor square = randn({512, 512}, kFloat32, {}, Generator(20));
  const Tensor batch = randn({64, 512, 4}, kFloat32, {}, Generator(21));
  const int64_t products = growth([&] {
    matmul(square, batch);  // 64 copies of the matrix would take 64 MiB
    einsum("ij,bjk->bik", {square, batch});
    tensordot(batch, square, {1}, {0});
  });
  if (products < 0) GTEST_SKIP() << "this system does not tell the peak";
  EXPECT_LT(products, 8 * kMiB);
  const Tensor rows = randn({64, 65536}, kFloat32, {}, Generator(22));  // 16 MiB
  EXPECT_LT(growth([&] {
              cov(rows);
              corrcoef(rows);
            }),
            40 * kMiB);
  const Tensor line = std::get<0>(sort(rand({1 << 20}, kFloat32, {}, Generator(23))));
  const Tensor elements = rows.reshape({-1}).narrow(0, 0, 1 << 20);  // 8 MiB of positions
  EXPECT_LT(growth([&] {
              searchsorted(line, elements);
              bucketize(elements, line);
            }),
            24 * kMiB);
  const Tensor small = randn({40, 40}, kFloat32, {}, Generator(24));  // 10 MiB
  EXPECT_LT(growth([&] { kron(small, small); }), 16 * kMiB);
  const Tensor repeats = ones({1 << 20}, kInt64);  // 8 MiB
  EXPECT_LT(growth([&] { repeat_interleave(elements, repeats); }), 48 * kMiB);
}

}  // namespace
}  // namespace mytorch
