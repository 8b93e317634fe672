// Values that a matrix product must keep: NaN, infinities, and every float16 and bfloat16.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "backends/cpu-openmp/gemm/gemm.h"
#include "backends/cpu-openmp/simd/instruction_set.h"
#include "tests/backends/cpu-openmp/gemm_check.h"

namespace mytorch::cpu {
namespace {

using namespace gemm_test;

template <class T>
T special(double value) {
  if constexpr (sizeof(T) == 2) {
    return nearest<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
class FloatingGemmTest : public ::testing::Test {};
using FloatingTypes = ::testing::Types<float, double, Half, Brain>;
TYPED_TEST_SUITE(FloatingGemmTest, FloatingTypes);

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A product of zeros, in which one element of A or B is special. All share its inner dimension.
template <class T>
struct ZeroProduct {
  explicit ZeroProduct(const Case& shape)
      : x(shape), a(1, x.m, x.k, x.a), b(1, x.k, x.n, x.b), c(1, x.m, x.n, x.c) {}

  void run(bool relu = false) {
    Host host(2);
    x.relu = relu;
    ASSERT_EQ(gemm(host.ctx(), problem_of(x, a, b, c)), MT_OK);
  }
  double result(int64_t i, int64_t j) const { return to_double(c.at(0, i, j)); }

  Case x;
  Tensor3<T> a, b, c;
  int64_t row = x.m - 1, column = x.n / 2, inner = x.k - 1;
};

std::vector<Case> zero_products() {
  std::vector<Case> cases;
  for (const Case& shape : {Case{2, 2, 2}, Case{7, 9, 5}, Case{1, 70, 33}, Case{70, 1, 33},
                            Case{45, 50, 600}, Case{13, 130, 20}, Case{150, 300, 40}}) {
    for (const Layout layout : {Layout::row_major, Layout::col_major, Layout::gaps}) {
      cases.push_back({shape.m, shape.n, shape.k, layout, layout, layout});
    }
  }
  return cases;
}

TYPED_TEST(FloatingGemmTest, ASpecialElementOfATimesZeroIsNanInExactlyItsRow) {
  for (const Case& x : zero_products()) {
    for (const double value : {kNan, kInfinity}) {
      SCOPED_TRACE(describe(x));
      ZeroProduct<TypeParam> p(x);
      p.a.at(0, p.row, p.inner) = special<TypeParam>(value);
      p.run();
      for (int64_t i = 0; i < x.m; ++i) {
        for (int64_t j = 0; j < x.n; ++j) {
          ASSERT_EQ(std::isnan(p.result(i, j)), i == p.row) << i << "," << j;
        }
      }
    }
  }
}

TYPED_TEST(FloatingGemmTest, ASpecialElementOfBTimesZeroIsNanInExactlyItsColumnAfterRelu) {
  for (const Case& x : zero_products()) {
    for (const double value : {kNan, kInfinity}) {
      SCOPED_TRACE(describe(x));
      ZeroProduct<TypeParam> p(x);
      p.b.at(0, p.inner, p.column) = special<TypeParam>(value);
      p.run(true);
      for (int64_t i = 0; i < x.m; ++i) {
        for (int64_t j = 0; j < x.n; ++j) {
          ASSERT_EQ(std::isnan(p.result(i, j)), j == p.column) << i << "," << j;
        }
      }
    }
  }
}

TYPED_TEST(FloatingGemmTest, InfinityTimesANumberIsInfinityOfItsSign) {
  for (const Case& x : zero_products()) {
    SCOPED_TRACE(describe(x));
    ZeroProduct<TypeParam> p(x);
    p.b.at(0, p.inner, p.column) = special<TypeParam>(kInfinity);
    for (int64_t i = 0; i < x.m; ++i) {
      p.a.at(0, i, p.inner) = special<TypeParam>(i % 2 == 0 ? 1 : -1);
    }
    p.run();
    for (int64_t i = 0; i < x.m; ++i) {
      ASSERT_EQ(p.result(i, p.column), i % 2 == 0 ? kInfinity : -kInfinity) << i;
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

// Whether a product may be as if this factor were zero.
template <class T>
bool may_count_as_zero(double factor) {
  return std::is_same_v<T, Brain> && simd::has_bfloat16_pairs() && std::fabs(factor) < 0x1p-126;
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
      } else if (!may_count_as_zero<T>(value) || got != 0) {
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
        if (may_count_as_zero<T>(to_double(b.at(0, 0, j))) ||
            may_count_as_zero<T>(to_double(b.at(0, 1, j))) || may_count_as_zero<T>(sum)) {
          continue;
        }
        ASSERT_EQ(to_double(c.at(0, m - 1, j)), to_double(special<T>(sum)))
            << to_double(b.at(0, 0, j)) << " + " << to_double(b.at(0, 1, j));
      }
    }
  }
}

}  // namespace
}  // namespace mytorch::cpu
