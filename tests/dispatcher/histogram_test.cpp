// Values on the edges of bins of histograms.
#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "mytorch/mytorch.h"

namespace mytorch {
namespace {

std::vector<double> counts_in(const Tensor& x) { return x.to(kFloat64).to_vector<double>(); }

TEST(Histogram, AValueOnAnEdgeIsInTheBinThatBeginsThere) {
  for (const ScalarType type : {kFloat32, kFloat64}) {
    const Tensor whole = histc(arange(151).to(type), 151, 0, 151);
    EXPECT_EQ(counts_in(whole), std::vector<double>(151, 1.0)) << type;
    // Edges that have no exact representation; the last bin includes both of its edges.
    for (const int64_t bins : {1, 3, 7, 10, 49, 100, 151, 1000}) {
      for (const double low : {-3.3, 0.0, 0.7}) {
        const double high = low + 0.1 * static_cast<double>(bins);
        const Tensor edges = linspace(low, high, bins + 1, type);
        std::vector<double> expected(static_cast<size_t>(bins), 1.0);
        expected.back() = 2;
        EXPECT_EQ(counts_in(histc(edges, bins, low, high)), expected) << type << " " << bins;
        EXPECT_EQ(counts_in(std::get<0>(histogram(edges, bins, std::vector<double>{low, high}))),
                  expected)
            << type << " " << bins;
      }
    }
  }
}

TEST(Histogram, ValuesOutsideTheRangeAndNaNDoNotCount) {
  const Tensor x = tensor({-1.0, 0.0, 0.5, 1.0, 1.5, NAN, INFINITY, -INFINITY});
  EXPECT_EQ(counts_in(histc(x, 2, 0, 1)), (std::vector<double>{1, 2}));
}

TEST(Histogram, CountsAreExactInNarrowTypes) {
  // 2049 has no representation in bfloat16, but the count is made of integers and rounded once.
  EXPECT_EQ(counts_in(histc(zeros({3000}, kBFloat16), 1, -1, 1)), std::vector<double>{3008});
}

}  // namespace
}  // namespace mytorch
