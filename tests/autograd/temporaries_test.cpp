// Operators that could compute with temporaries much larger than their operands and results: what
// they give, and the memory that they take.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
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

// ---- products of all pairs ----

bool near(const Tensor& a, const Tensor& b) { return allclose(a, b, 1e-10, 1e-10); }

TEST(Pairs, ProductsBroadcastOverMiddleDimensions) {
  // Copies of both operands would be larger than all else, so rows and columns are joined.
  const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> shapes = {
      {{6, 1, 2, 9}, {1, 5, 9, 3}},       {{6, 1, 1, 9}, {5, 9, 1}},
      {{2, 1, 7, 1, 9}, {2, 4, 1, 9, 2}}, {{9}, {3, 4, 9, 2}},
      {{6, 1, 2, 9}, {4, 6, 5, 9, 1}},    {{0, 1, 2, 9}, {1, 5, 9, 3}}};
  for (const auto& [left, right] : shapes) {
    for (const ScalarType type : {kFloat64, kComplex128, kInt64}) {
      const Tensor a = (randn(left, kFloat64, {}, Generator(26)) * 5).to(type);
      const Tensor b = (randn(right, kFloat64, {}, Generator(27)) * 5).to(type);
      const Tensor rows = a.dim() == 1 ? a.unsqueeze(0) : a;
      Tensor expected = (rows.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2);
      if (a.dim() == 1) expected = expected.squeeze(-2);
      const Tensor found = matmul(a, b);
      ASSERT_EQ(found.sizes().vec(), expected.sizes().vec());
      EXPECT_TRUE(found.is_contiguous());
      EXPECT_TRUE(near(found, expected)) << dtype_name(type);
    }
  }
}

TEST(Pairs, InnerProductsOfAllPairsOfVectors) {
  for (const int64_t dim : {0, 2, -1}) {
    const Tensor x = randn({7, 1, 5}, kFloat64, {}, Generator(28)).movedim(-1, dim);
    const Tensor y = randn({1, 8, 5}, kFloat64, {}, Generator(29)).movedim(-1, dim);
    const Tensor units = [&] {
      const auto unit = [&](const Tensor& t) { return t / (t * t).sum(dim, true).sqrt(); };
      return (unit(x) * unit(y)).sum(dim);
    }();
    EXPECT_TRUE(near(cosine_similarity(x, y, dim), units));
    EXPECT_TRUE(near(linalg_vecdot(x, y, dim), (x * y).sum(dim)));
    // A dimension of size 1 stands for equal elements.
    const Tensor one = randn({1, 8, 1}, kFloat64, {}, Generator(30)).movedim(-1, dim);
    EXPECT_TRUE(near(linalg_vecdot(x, one, dim), (x * one).sum(dim)));
    EXPECT_TRUE(near(cosine_similarity(x, one, dim),
                     cosine_similarity(x, one.expand_as(y).contiguous(), dim)));
  }
  const Tensor z = randn({7, 1, 5}, kComplex128, {}, Generator(31));
  const Tensor w = randn({8, 5}, kComplex128, {}, Generator(32));
  EXPECT_TRUE(near(linalg_vecdot(z, w), (z.conj() * w).sum(-1)));
  EXPECT_EQ(values(cosine_similarity(tensor(2.0, kFloat64), tensor(-3.0, kFloat64), 0)),
            (Values{-1}));
}

TEST(Pairs, NeverExistAsAWhole) {
  const Tensor x = randn({512, 1, 256}, kFloat32, {}, Generator(33)).requires_grad_();
  const Tensor y = randn({1, 512, 256}, kFloat32, {}, Generator(34)).requires_grad_();
  const int64_t grown = growth([&] {
    cosine_similarity(x, y, -1).sum().backward();
    linalg_vecdot(x, y).sum().backward();
    matmul(x.unsqueeze(-2), y.unsqueeze(-1)).sum().backward();
  });
  if (grown < 0) GTEST_SKIP() << "this system does not tell the peak";
  EXPECT_LT(grown, 32 * kMiB);  // the products take 256 MiB
}

// Every pair of a label and another class, as the loss is defined.
double multilabel_loss(const Values& x, const std::vector<int64_t>& labels) {
  const auto is_label = [&](int64_t c) {
    return std::find(labels.begin(), labels.end(), c) != labels.end();
  };
  double sum = 0;
  for (const int64_t label : labels) {
    for (size_t c = 0; c < x.size(); ++c) {
      if (!is_label(static_cast<int64_t>(c))) sum += std::fmax(0, 1 - x[label] + x[c]);
    }
  }
  return sum / static_cast<double>(x.size());
}

TEST(MultilabelMarginLoss, IsTheSumOverPairs) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<Values, std::vector<int64_t>>> rows = {
      {{0.1, 0.2, 0.4, 0.8}, {3, 0}},  {{1e6, 1e6 + 0.5, 1e6 - 3, 1e6}, {1}},
      {{1, 0, -1, 2}, {0, 1, 2, 3}},   {{1, 0, 2, 1}, {2, 0}},  // bounds that are scores
      {{1, kInf, 2, -kInf}, {1}},      {{1, kInf, 2, 3}, {0}},
      {{-kInf, 5, -kInf, 3}, {1, 3}},  {{3, 2, 1, 0}, {}},
      {{-300, 400, 2e8, -1e9}, {0, 2}}};
  for (const auto& [x, labels] : rows) {
    std::vector<int64_t> target = labels;
    if (target.size() < x.size()) target.push_back(-1);
    while (target.size() < x.size()) target.push_back(2);  // after the end
    const double found = values(multilabel_margin_loss(plain(x), tensor(target)))[0];
    const double expected = multilabel_loss(x, labels);
    if (std::isinf(expected)) {
      EXPECT_EQ(found, expected);
    } else {
      EXPECT_NEAR(found, expected, 1e-14 * std::fmax(1, expected));
    }
  }
  const Tensor target =
      tensor(std::vector<int64_t>{3, 0, -1, 2, 4, -1, 0, 0, 0, 0}).reshape({2, 5});
  const auto f = [&](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{multilabel_margin_loss(in[0], target, "none")};
  };
  const Tensor scores = randn({2, 5}, kFloat64, {}, Generator(35)).requires_grad_();
  EXPECT_EQ(autograd::gradcheck(f, {scores}).message, "");
  EXPECT_EQ(autograd::gradgradcheck(f, {scores}).message, "");
}

TEST(MultilabelMarginLoss, PairsNeverExistAsAWhole) {
  const Tensor scores = randn({64, 1000}, kFloat32, {}, Generator(36)).requires_grad_();
  const Tensor target = full({64, 1000}, -1, kInt64);
  target.narrow(1, 0, 20).copy_(randint(0, 1000, {64, 20}, kInt64, {}, Generator(37)));
  const int64_t grown = growth([&] { multilabel_margin_loss(scores, target).backward(); });
  if (grown < 0) GTEST_SKIP() << "this system does not tell the peak";
  EXPECT_LT(grown, 32 * kMiB);  // the pairs take 250 MiB
}

// ---- bags ----

TEST(EmbeddingBag, GroupsOfBagsAreTheirSums) {
  const Tensor table = randn({50, 4}, kFloat64, {}, Generator(38));
  const Tensor indices = randint(0, 50, {40000}, kInt64, {}, Generator(39));
  // Empty bags, and one of more rows than a group has.
  const std::vector<int64_t> starts = {0, 0, 7, 3000, 3000, 25000, 25000, 39999, 40000};
  const Tensor scales = rand({40000}, kFloat64, {}, Generator(40));
  for (const char* mode : {"sum", "mean", "max", "scaled"}) {
    const bool scaled = mode[0] == 's' && mode[1] == 'c';
    const Tensor u = table.clone().requires_grad_(), v = table.clone().requires_grad_();
    const Tensor s = scales.clone().requires_grad_(), t = scales.clone().requires_grad_();
    const Tensor found = embedding_bag(u, indices, tensor(starts), false, scaled ? "sum" : mode,
                                       scaled ? s : Tensor(), false, 3);
    std::vector<Tensor> bags;
    for (size_t i = 0; i < starts.size(); ++i) {
      const int64_t end = i + 1 < starts.size() ? starts[i + 1] : 40000;
      const Tensor own = indices.narrow(0, starts[i], end - starts[i]);
      const Tensor kept = (own != 3).nonzero().squeeze(1);
      Tensor rows = v.index_select(0, own.index_select(0, kept));
      if (scaled) {
        rows = rows * t.narrow(0, starts[i], end - starts[i]).index_select(0, kept).unsqueeze(1);
      }
      bags.push_back(rows.size(0) == 0 ? zeros({4}, kFloat64)
                     : mode[1] == 'e'  ? rows.mean(0)
                     : mode[1] == 'a'  ? rows.amax({0})
                                       : rows.sum(0));
    }
    const Tensor expected = stack(bags);
    EXPECT_TRUE(near(found, expected)) << mode;
    const Tensor seed = randn(found.sizes(), kFloat64, {}, Generator(41));
    found.backward(seed);
    expected.backward(seed);
    EXPECT_TRUE(near(u.grad(), v.grad()) || mode[1] == 'a')
        << mode;  // of equal rows, max takes one
    if (scaled) {
      EXPECT_TRUE(near(s.grad(), t.grad()));
    }
  }
  // Frequencies are those of all bags.
  const Tensor w = table.clone().requires_grad_();
  embedding_bag(w, indices, tensor(starts), true, "sum").sum().backward();
  EXPECT_TRUE(near(w.grad(), ones({50, 4}, kFloat64)));
}

TEST(EmbeddingBag, TakesTheMemoryOfItsTable) {
  const Tensor table = randn({1000, 64}, kFloat32, {}, Generator(42)).requires_grad_();
  const Tensor indices = randint(0, 1000, {1 << 19}, kInt64, {}, Generator(43));
  const Tensor offsets = arange(0, 1 << 19, 1 << 10, kInt64);
  const int64_t grown =
      growth([&] { embedding_bag(table, indices, offsets, false, "sum").sum().backward(); });
  if (grown < 0) GTEST_SKIP() << "this system does not tell the peak";
  EXPECT_LT(grown, 64 * kMiB);  // the rows take 128 MiB, and their products as much
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
  EXPECT_LT(growth([&] { mvlgamma(elements + 20, 20); }), 24 * kMiB);
  const Tensor repeats = ones({1 << 20}, kInt64);  // 8 MiB
  EXPECT_LT(growth([&] { repeat_interleave(elements, repeats); }), 48 * kMiB);
}

}  // namespace
}  // namespace mytorch
