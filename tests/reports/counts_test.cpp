// Random counts follow their distributions.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "mytorch/mytorch.h"

namespace mytorch {
namespace {

constexpr int64_t kDraws = 200000;

std::vector<double> draws_of(const Tensor& counts) {
  const Tensor all = counts.to(kFloat64).contiguous();
  const double* data = all.const_data<double>();
  return {data, data + all.numel()};
}

// The statistic of Pearson's test over the counts from mean - 8 to mean + 8 deviations, in cells
// with 10 or more expected draws, less its degrees of freedom and over its deviation.
double excess(const std::vector<double>& draws, double mean, double deviation,
              const std::function<double(double)>& log_probability) {
  const auto low = static_cast<int64_t>(std::max(0.0, std::floor(mean - 8 * deviation)));
  const auto high = static_cast<int64_t>(std::ceil(mean + 8 * deviation)) + 1;
  std::vector<double> seen(static_cast<size_t>(high - low + 1));
  for (const double draw : draws) {
    EXPECT_EQ(draw, std::floor(draw));
    const auto at = std::clamp(static_cast<int64_t>(draw), low, high) - low;
    ++seen[static_cast<size_t>(at)];
  }
  double statistic = 0, cells = 0, expected = 0, found = 0;
  for (int64_t k = low; k <= high; ++k) {
    expected +=
        static_cast<double>(draws.size()) * std::exp(log_probability(static_cast<double>(k)));
    found += seen[static_cast<size_t>(k - low)];
    if (expected < 10) continue;
    statistic += (found - expected) * (found - expected) / expected;
    ++cells;
    expected = found = 0;
  }
  return (statistic - cells) / std::sqrt(2 * cells);
}

double log_of_poisson(double rate, double k) {
  return k * std::log(rate) - rate - std::lgamma(k + 1);
}
double log_of_binomial(double n, double p, double k) {
  if (k > n) return -HUGE_VAL;
  if (n > 1e10) return log_of_poisson(n * p, k);  // the same within k * k / n
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(p) +
         (n - k) * std::log1p(-p);
}

TEST(RandomCounts, OfPoisson) {
  for (const double rate : {0.01, 0.5, 3.0, 9.99, 10.0, 11.5, 40.0, 1000.0}) {
    const std::vector<double> draws =
        draws_of(poisson(full({kDraws}, rate, kFloat64), Generator(7)));
    EXPECT_LT(
        excess(draws, rate, std::sqrt(rate), [&](double k) { return log_of_poisson(rate, k); }), 5)
        << rate;
  }
}

TEST(RandomCounts, OfTheBinomialDistribution) {
  const std::vector<std::pair<double, double>> cases = {
      {1, 0.3},    {10, 0.5},   {20, 0.9},     {25, 0.4},     {40, 0.5},    {1000, 0.01},
      {1000, 0.2}, {300, 0.97}, {1e13, 3e-12}, {1e16, 1e-14}, {1e30, 1e-28}};
  for (const auto& [n, p] : cases) {
    const Tensor count = full({kDraws}, n, kFloat64);
    const std::vector<double> draws =
        draws_of(binomial(count, full({1}, p, kFloat64), Generator(8)));
    EXPECT_LT(excess(draws, n * p, std::sqrt(n * p * (1 - p)),
                     [&, n = n, p = p](double k) { return log_of_binomial(n, p, k); }),
              5)
        << n << " " << p;
  }
}

// Far out, in units of the deviation: means of many draws, and the mean of their squares.
TEST(RandomCounts, OfLargeMeans) {
  const auto expect_standard = [](const Tensor& counts, double mean, double variance) {
    const Tensor z = (counts - mean) / std::sqrt(variance);
    EXPECT_LT(std::abs(z.mean().item<double>()), 5 / std::sqrt(kDraws)) << mean;
    EXPECT_LT(std::abs((z * z).mean().item<double>() - 1), 5 * std::sqrt(2.0 / kDraws)) << mean;
  };
  for (const double rate : {1e6, 1e12, 1e13, 1e20}) {
    expect_standard(poisson(full({kDraws}, rate, kFloat64), Generator(9)), rate, rate);
  }
  for (const double p : {1e-9, 0.001, 0.5, 0.75}) {
    const double n = 1e13;
    expect_standard(
        binomial(full({kDraws}, n, kFloat64), full({kDraws}, p, kFloat64), Generator(10)), n * p,
        n * p * (1 - p));
  }
}

TEST(RandomCounts, OfNoChance) {
  const double infinity = HUGE_VAL;
  const Tensor counts = poisson(tensor({0.0, infinity, 0.0}, kFloat32), Generator(1));
  EXPECT_TRUE(equal(counts, tensor({0.0, infinity, 0.0}, kFloat32)));
  EXPECT_TRUE(equal(binomial(tensor({0.0, 5.0, 5.0, 1e30}, kFloat32),
                             tensor({0.5, 0.0, 1.0, 1.0}, kFloat32), Generator(1)),
                    tensor({0.0, 0.0, 5.0, 1e30}, kFloat32)));
}

// The numbers of an element do not depend on others, nor on strides.
TEST(RandomCounts, OfAnElementAreItsOwn) {
  const Tensor rates = rand({60, 50}, kFloat32, {}, Generator(2)) * 40;
  const Tensor counts = poisson(rates, Generator(3));
  EXPECT_EQ(counts.dtype(), kFloat32);
  EXPECT_TRUE(equal(poisson(rates.t().contiguous().t(), Generator(3)), counts));
  Tensor others = rates.clone();
  others.slice(0, 1).mul_(2.0).add_(10.0);
  EXPECT_TRUE(equal(poisson(others, Generator(3)).select(0, 0), counts.select(0, 0)));
}

TEST(RandomCounts, HaveNoGradient) {
  const Tensor rates = full({3}, 2.0, kFloat32).requires_grad_();
  EXPECT_FALSE(poisson(rates).requires_grad());
  EXPECT_FALSE(binomial(rates.detach(), rates / 4).requires_grad());
}

}  // namespace
}  // namespace mytorch
