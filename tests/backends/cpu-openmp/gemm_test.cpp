// The matrix product against the definition: naive loops with sums in double (or exact wrapping
// integers), for every dtype, layout, shape class and option, on one thread and on several.
#include "backends/cpu-openmp/gemm/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "hwy/targets.h"
#include "tests/backends/cpu-openmp/gemm_check.h"

namespace mytorch::cpu {
namespace {

using namespace gemm_test;

template <class T>
class GemmTest : public ::testing::Test {};
using AllTypes =
    ::testing::Types<float, double, Half, Brain, int8_t, uint8_t, int16_t, int32_t, int64_t>;
TYPED_TEST_SUITE(GemmTest, AllTypes);

// Sizes around every tile edge of every instruction set: 4, 6 and 14 rows, 8, 16 and 32 columns.
TYPED_TEST(GemmTest, SmallShapesAgreeWithTheDefinition) {
  for (const int64_t m : {1, 2, 3, 5, 6, 7, 8, 13, 14, 15, 29}) {
    for (const int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 65}) {
      for (const int64_t k : {1, 2, 3, 4, 5, 8, 17, 64}) check<TypeParam>({m, n, k});
    }
  }
}

TYPED_TEST(GemmTest, EveryLayoutAgreesWithTheDefinition) {
  for (const Layout a : kLayouts) {
    for (const Layout b : kLayouts) {
      for (const Layout c : kLayouts) {
        check<TypeParam>({17, 35, 19, a, b, c});
        check<TypeParam>({1, 37, 21, a, b, c, 1, true});
        check<TypeParam>({37, 1, 21, a, b, c});
        check<TypeParam>({3, 2, 3, a, b, c, 1, true});
      }
      check<TypeParam>({61, 150, 47, a, b});
      check<TypeParam>({150, 61, 47, a, b, Layout::col_major, 1, true, true});
    }
  }
}

TYPED_TEST(GemmTest, EmptyProductsAreZeroOrLeaveCUntouched) {
  for (const bool accumulate : {false, true}) {
    for (const bool bias : {false, true}) {
      check<TypeParam>({0, 5, 4, {}, {}, {}, 1, accumulate, bias});
      check<TypeParam>({5, 0, 4, {}, {}, {}, 1, accumulate, bias});
      check<TypeParam>({5, 4, 0, {}, {}, {}, 1, accumulate, bias});
      check<TypeParam>({1, 1, 0, {}, {}, {}, 2, accumulate, bias});
      check<TypeParam>({70, 90, 0, {}, {}, Layout::gaps, 1, accumulate, bias});
      check<TypeParam>({5, 4, 3, {}, {}, {}, 0, accumulate, bias});
      check<TypeParam>({0, 0, 0, {}, {}, {}, 1, accumulate, bias});
    }
  }
}

// Several blocks of k, whose partial sums are added in C or in the workspace, and several blocks of
// m and n.
TYPED_TEST(GemmTest, SumsOverSeveralBlocksAgreeWithTheDefinition) {
  check<TypeParam>({37, 45, 1300});
  check<TypeParam>(
      {37, 45, 1301, Layout::col_major, Layout::col_major, Layout::gaps, 1, true, true});
  check<TypeParam>({700, 33, 600, Layout::padded_cols});
  check<TypeParam>({20, 5000, 17, {}, Layout::col_major});
  check<TypeParam>({1, 3000, 700, {}, {}, {}, 1, true, true});
  check<TypeParam>({1, 300, 5000, Layout::gaps, Layout::col_major, {}, 1, true, true});
}

TYPED_TEST(GemmTest, ThreadedProductsAgreeWithTheDefinition) {
  for (const int threads : {2, 3, 8}) {
    check<TypeParam>({150, 170, 190, {}, {}, {}, 1, true, true, false, threads});
    check<TypeParam>({9, 1500, 301, {}, Layout::col_major, {}, 1, false, true, false, threads});
    check<TypeParam>({1500, 9, 301, Layout::col_major, {}, {}, 1, false, true, false, threads});
    check<TypeParam>({1, 2000, 700, {}, {}, {}, 1, true, false, false, threads});
    check<TypeParam>({60, 70, 80, {}, {}, {}, 33, true, true, false, threads});
  }
}

TYPED_TEST(GemmTest, BatchesAgreeWithTheDefinition) {
  for (const Layout c : {Layout::row_major, Layout::col_major, Layout::gaps}) {
    check<TypeParam>({2, 2, 2, {}, {}, c, 50});
    check<TypeParam>({1, 33, 40, {}, {}, c, 5, true, true});
    check<TypeParam>({33, 1, 40, {}, {}, c, 5, true, true});
    check<TypeParam>({19, 21, 23, Layout::col_major, {}, c, 6, false, true});
  }
}

template <class T>
class FloatingGemmTest : public ::testing::Test {};
using FloatingTypes = ::testing::Types<float, double, Half, Brain>;
TYPED_TEST_SUITE(FloatingGemmTest, FloatingTypes);

TYPED_TEST(FloatingGemmTest, ReluAgreesWithTheDefinition) {
  for (const Layout c : {Layout::row_major, Layout::col_major, Layout::gaps}) {
    for (const bool bias : {false, true}) {
      check<TypeParam>({2, 3, 4, {}, {}, c, 1, false, bias, true});
      check<TypeParam>({1, 70, 40, {}, {}, c, 1, true, bias, true});
      check<TypeParam>({70, 1, 40, {}, {}, c, 1, true, bias, true});
      check<TypeParam>({65, 47, 30, {}, {}, c, 2, true, bias, true});
      check<TypeParam>({40, 50, 900, {}, {}, c, 1, true, bias, true, 3});
    }
  }
}

template <class T>
T special(double value) {
  if constexpr (sizeof(T) == 2) {
    return nearest<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

// A NaN or infinity in A or B reaches exactly the elements whose sums contain it, even if
// multiplied by zero.
TYPED_TEST(FloatingGemmTest, NanAndInfinityReachExactlyTheirSums) {
  using T = TypeParam;
  struct Shape {
    int64_t m, n, k;
  };
  for (const Shape s : {Shape{2, 2, 2}, Shape{7, 9, 5}, Shape{1, 70, 33}, Shape{70, 1, 33},
                        Shape{45, 50, 600}, Shape{13, 130, 20}, Shape{150, 300, 40}}) {
    for (const Layout layout : {Layout::row_major, Layout::col_major, Layout::gaps}) {
      for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
        SCOPED_TRACE(std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k));
        const Case x = {s.m, s.n, s.k, layout, layout, layout};
        Tensor3<T> a(1, s.m, s.k, layout), b(1, s.k, s.n, layout), c(1, s.m, s.n, layout);
        const int64_t row = s.m - 1, column = s.n / 2, inner = s.k - 1;
        a.at(0, row, inner) = special<T>(bad);  // B is all zeros: bad * 0 is NaN
        Host host(2);
        ASSERT_EQ(gemm(host.ctx(), problem_of(x, a, b, c)), MT_OK);
        for (int64_t i = 0; i < s.m; ++i) {
          for (int64_t j = 0; j < s.n; ++j) {
            ASSERT_EQ(std::isnan(to_double(c.at(0, i, j))), i == row) << i << "," << j;
          }
        }
        a.at(0, row, inner) = special<T>(0);
        b.at(0, inner, column) = special<T>(bad);
        GemmProblem p = problem_of(x, a, b, c);
        p.activation = GemmProblem::relu;  // keeps NaN
        ASSERT_EQ(gemm(host.ctx(), p), MT_OK);
        for (int64_t i = 0; i < s.m; ++i) {
          for (int64_t j = 0; j < s.n; ++j) {
            ASSERT_EQ(std::isnan(to_double(c.at(0, i, j))), j == column) << i << "," << j;
          }
        }
        // An infinite product stays infinite, with its sign.
        if (std::isinf(bad)) {
          for (int64_t i = 0; i < s.m; ++i) a.at(0, i, inner) = special<T>(i % 2 == 0 ? 1 : -1);
          p.activation = GemmProblem::none;
          ASSERT_EQ(gemm(host.ctx(), p), MT_OK);
          for (int64_t i = 0; i < s.m; ++i) {
            ASSERT_EQ(to_double(c.at(0, i, column)), i % 2 == 0 ? bad : -bad);
          }
        }
      }
    }
  }
}

// Without `accumulate`, the previous contents of C do not matter, even NaN.
TYPED_TEST(FloatingGemmTest, OldContentsOfCAreNotRead) {
  using T = TypeParam;
  for (const int64_t size : {1, 2, 5, 16, 45, 130}) {
    for (const int64_t k : {int64_t{0}, size, int64_t{700}}) {
      const Case x = {size, size, k};
      Tensor3<T> a = random_tensor<T>(1, size, k, x.a, 1), b = random_tensor<T>(1, k, size, x.b, 2);
      Tensor3<T> c(1, size, size, x.c);
      std::fill(c.buffer.begin(), c.buffer.end(), special<T>(std::nan("")));
      Host host(1);
      ASSERT_EQ(gemm(host.ctx(), problem_of(x, a, b, c)), MT_OK);
      for (const T value : c.buffer) ASSERT_FALSE(std::isnan(to_double(value)));
    }
  }
}

// Multiplication by one preserves every float16 and bfloat16 (NaN becomes some NaN).
template <class T>
class NarrowGemmTest : public ::testing::Test {};
using NarrowTypes = ::testing::Types<Half, Brain>;
TYPED_TEST_SUITE(NarrowGemmTest, NarrowTypes);

TYPED_TEST(NarrowGemmTest, EveryValueSurvivesAProductWithTheIdentity) {
  using T = TypeParam;
  constexpr int64_t kColumns = 1024;
  const Case x = {64, kColumns, 1};
  Tensor3<T> a(1, 64, 1, x.a), b(1, 1, kColumns, x.b), c(1, 64, kColumns, x.c);
  for (T& value : a.buffer) value = special<T>(1);
  for (uint32_t first = 0; first < 65536; first += kColumns) {
    for (int64_t j = 0; j < kColumns; ++j) {
      b.at(0, 0, j).bits = static_cast<uint16_t>(first + static_cast<uint32_t>(j));
    }
    Host host(1);
    ASSERT_EQ(gemm(host.ctx(), problem_of(x, a, b, c)), MT_OK);
    for (int64_t j = 0; j < kColumns; ++j) {
      const double value = to_double(b.at(0, 0, j)), got = to_double(c.at(0, 63, j));
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(got));
      } else {
        ASSERT_EQ(value, got);
      }
    }
  }
}

// A sum of two values rounds to nearest even, for all exponents and ties.
TYPED_TEST(NarrowGemmTest, SumsRoundToNearestEven) {
  using T = TypeParam;
  constexpr int64_t kColumns = 500;
  for (const int64_t m : {2, 1}) {
    for (int round = 0; round < 60; ++round) {
      const Case x = {m, kColumns, 2};
      Tensor3<T> a(1, m, 2, x.a), b(1, 2, kColumns, x.b), c(1, m, kColumns, x.c);
      for (T& value : a.buffer) value = special<T>(1);
      Random random(static_cast<uint64_t>(round) + 1);
      for (int64_t j = 0; j < kColumns; ++j) {
        const double large = to_double(T{static_cast<uint16_t>(random.next())});
        b.at(0, 0, j) = special<T>(large);
        // The exponents are so close that float32 holds the exact sum.
        b.at(0, 1, j) = special<T>(std::ldexp(large, -static_cast<int>(random.next() % 10)) *
                                   (random.next() % 2 == 0 ? 1 : -1));
      }
      Host host(1);
      ASSERT_EQ(gemm(host.ctx(), problem_of(x, a, b, c)), MT_OK);
      for (int64_t j = 0; j < kColumns; ++j) {
        const double sum = to_double(b.at(0, 0, j)) + to_double(b.at(0, 1, j));
        if (!std::isfinite(sum) || std::fabs(sum) > std::numeric_limits<float>::max()) continue;
        ASSERT_EQ(to_double(c.at(0, m - 1, j)), to_double(special<T>(sum)))
            << to_double(b.at(0, 0, j)) << " + " << to_double(b.at(0, 1, j));
      }
    }
  }
}

// ---- tests that do not depend on the dtype ----------------------------------------------------

TEST(GemmTest, OperandsMayBroadcast) {
  // Stride 0 along k, along a row, and over the batch.
  std::vector<float> a = {1, 2, 3}, b = {2, 4};
  std::vector<float> c(4 * 3 * 40);
  GemmProblem p{};
  p.dtype = Traits<float>::dtype;
  p.m = 3, p.n = 40, p.k = 50, p.batch = 4;
  p.a = {a.data(), 1, 0};
  p.b = {b.data(), 0, 0};
  p.c = {c.data(), 40, 1};
  p.c_batch_stride = 120;
  Host host(1);
  ASSERT_EQ(gemm(host.ctx(), p), MT_OK);
  for (int64_t e = 0; e < 480; ++e) {
    ASSERT_EQ(c[static_cast<size_t>(e)], 100.0f * static_cast<float>(e % 120 / 40 + 1));
  }
}

TEST(GemmTest, SharedRightOperandIsOneTallerProduct) {
  Tensor3<float> a = random_tensor<float>(1, 60, 20, Layout::row_major, 1);
  Tensor3<float> b = random_tensor<float>(1, 20, 30, Layout::row_major, 2);
  Tensor3<float> whole(1, 60, 30, Layout::row_major), parts(1, 60, 30, Layout::row_major);
  Host host(1);
  GemmProblem p = problem_of<float>({60, 30, 20}, a, b, whole);
  ASSERT_EQ(gemm(host.ctx(), p), MT_OK);
  p.m = 12, p.batch = 5;
  p.a_batch_stride = 12 * 20, p.b_batch_stride = 0, p.c_batch_stride = 12 * 30;
  p.c.data = parts.data();
  ASSERT_EQ(gemm(host.ctx(), p), MT_OK);
  EXPECT_EQ(whole.buffer, parts.buffer);
}

TEST(GemmTest, SameBitsForAnyNumberOfThreads) {
  for (const auto& [m, n, k] : {std::tuple{300, 200, 700}, {1, 3000, 999}, {7, 900, 1200}}) {
    for (const Layout layout : {Layout::row_major, Layout::col_major}) {
      std::vector<float> first;
      for (const int threads : {1, 2, 5}) {
        for (const bool one_piece : {false, true}) {
          Tensor3<float> a = random_tensor<float>(1, m, k, layout, 1);
          Tensor3<float> b = random_tensor<float>(1, k, n, layout, 2);
          Tensor3<float> c(1, m, n, Layout::row_major);
          Host host(threads);
          host.one_piece = one_piece;
          ASSERT_EQ(gemm(host.ctx(), problem_of<float>({m, n, k}, a, b, c)), MT_OK);
          if (first.empty()) first = c.buffer;
          ASSERT_EQ(c.buffer, first) << m << " " << threads << " " << one_piece;
        }
      }
    }
  }
}

TEST(GemmTest, LargeProductsUseTheThreadsAndSmallOnesNeitherThreadsNorScratch) {
  const auto run = [](int64_t size, int64_t batch, Host& host) {
    Tensor3<float> a = random_tensor<float>(batch, size, size, Layout::row_major, 1);
    Tensor3<float> b = random_tensor<float>(batch, size, size, Layout::row_major, 2);
    Tensor3<float> c(batch, size, size, Layout::row_major);
    Case x = {size, size, size};
    x.batch = batch;
    EXPECT_EQ(gemm(host.ctx(), problem_of(x, a, b, c)), MT_OK);
  };
  Host small(4), large(4), batched(4);
  run(32, 1, small);
  EXPECT_EQ(small.pieces, 0);
  EXPECT_EQ(small.scratch_calls(), 0);
  run(300, 1, large);
  EXPECT_GE(large.pieces, 4);
  EXPECT_EQ(large.scratch_calls(), 1);
  run(32, 100, batched);
  EXPECT_EQ(batched.pieces, 4);  // once over the batch, not once per product
}

TEST(GemmTest, ErrorsHaveAStatusAndAMessageAndLeaveCUntouched) {
  Host host(1);
  float c[4] = {7, 7, 7, 7};
  float x[4] = {1, 2, 3, 4};
  GemmProblem p{};
  p.dtype = Traits<float>::dtype;
  p.m = p.n = p.k = 2;
  p.a = p.b = {x, 2, 1};
  p.c = {c, 2, 1};

  GemmProblem bad = p;
  bad.dtype = {MT_BOOL, 8, 1};
  EXPECT_EQ(gemm(host.ctx(), bad), MT_ERROR_TYPE);
  EXPECT_EQ(host.error, "[gemm] there is no matrix product for this dtype");
  bad.dtype = {MT_FLOAT, 8, 1};
  EXPECT_EQ(gemm(host.ctx(), bad), MT_ERROR_TYPE);
  bad = p;
  bad.dtype = Traits<int32_t>::dtype;
  bad.activation = GemmProblem::relu;
  EXPECT_EQ(gemm(host.ctx(), bad), MT_ERROR_TYPE);
  bad = p;
  bad.k = -1;
  EXPECT_EQ(gemm(host.ctx(), bad), MT_ERROR_SHAPE);
  for (const float value : c) EXPECT_EQ(value, 7);

  host.out_of_memory = true;
  EXPECT_EQ(gemm(host.ctx(), p), MT_OK);  // needs no scratch memory
  EXPECT_EQ(c[3], 22);
  Tensor3<float> a = random_tensor<float>(1, 300, 300, Layout::row_major, 1);
  Tensor3<float> b = random_tensor<float>(1, 300, 300, Layout::row_major, 2);
  Tensor3<float> large(1, 300, 300, Layout::row_major);
  EXPECT_EQ(gemm(host.ctx(), problem_of<float>({300, 300, 300}, a, b, large)),
            MT_ERROR_OUT_OF_MEMORY);
  for (const float value : large.buffer) ASSERT_EQ(value, 0);
}

// The tests above run on the best instruction set of the machine. This one repeats the hard shapes
// on every instruction set that the machine supports.
class GemmTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};
INSTANTIATE_TEST_SUITE_P(, GemmTarget, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

TEST_P(GemmTarget, EveryDtypeAgreesWithTheDefinition) {
  for (const Layout layout : {Layout::row_major, Layout::col_major, Layout::gaps}) {
    for (const int64_t k : {5, 520}) {
      const Case cases[] = {{29, 67, k, layout, layout, {}, 1, true, true, false, 2},
                            {1, 67, k, layout, layout, {}, 1, false, true},
                            {50, 130, k, layout, layout, layout, 1, true}};
      for (const Case& x : cases) {
        check<float>(x);
        check<double>(x);
        check<Half>(x);
        check<Brain>(x);
        check<int8_t>(x);
        check<int16_t>(x);
        check<int32_t>(x);
        check<int64_t>(x);
      }
    }
  }
}

}  // namespace
}  // namespace mytorch::cpu
