// Functions of elements that consist of several operators, against the C library and 60-digit
// values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "mytorch/ops.h"
#include "mytorch/tensor.h"

namespace mytorch {
namespace {

struct GammaCase {
  double a, x, lower, upper;
};

// By mpmath, from the power series.
const std::vector<GammaCase> kGamma = {
    {0.5, 0.25, 0.52049987781304654, 0.47950012218695346},
    {0.001, 0.01, 0.99596940303351316, 0.0040305969664868442},
    {1e-09, 0.25, 0.99999999895571737, 1.0442826345061356e-9},
    {0.002, 0.24, 0.99784739093396735, 0.002152609066032652},
    {0.03, 1.0, 0.99321788665494021, 0.0067821133450597919},
    {1.0, 1.0, 0.63212055882855768, 0.36787944117144232},
    {3.0, 2.5, 0.45618688411667048, 0.54381311588332952},
    {5.0, 20.0, 0.99998305525606993, 1.6944743930067384e-5},
    {9.5, 3.0, 0.0020715447971350258, 0.99792845520286497},
    {12.0, 4.0, 0.00091522914727006301, 0.99908477085272994},
    {30.0, 30.0, 0.52428301389368007, 0.47571698610631993},
    {100.0, 140.0, 0.99983894282528744, 0.00016105717471255586},
    {1000.0, 980.0, 0.26560403888218051, 0.73439596111781949},
    {10000.0, 10100.0, 0.84134875044717962, 0.15865124955282038},
    {2.0, 1e-05, 4.9999666667916672e-11, 0.99999999995000033},
    {50.0, 1.0, 1.2337508979097351e-65, 1.0},
};

TEST(IncompleteGamma, BothFunctionsHaveDigitsWhereTheyAreSmall) {
  for (const GammaCase& c : kGamma) {
    const Tensor a = tensor({c.a}, kFloat64), x = tensor({c.x}, kFloat64);
    const double lower = igamma(a, x).item<double>(), upper = igammac(a, x).item<double>();
    // The logarithm of a result has a rounding error, too.
    const auto allowed = [](double want) { return want * 4e-15 * (1 - std::log(want)); };
    EXPECT_NEAR(lower, c.lower, allowed(c.lower)) << c.a << ", " << c.x;
    EXPECT_NEAR(upper, c.upper, allowed(c.upper)) << c.a << ", " << c.x;
  }
}

TEST(IncompleteGamma, ManyElementsAreComputedInPieces) {
  const Tensor x = linspace(0.1, 20, 150001, kFloat64);
  const Tensor a = full({}, 2.5, kFloat64);
  const Tensor whole = igamma(a, x);
  for (const int64_t i : {0, 65535, 65536, 150000}) {
    EXPECT_EQ(whole[i].item<double>(), igamma(a, x[i]).item<double>()) << i;
  }
  EXPECT_EQ(igamma(a, zeros({0, 3}, kFloat64)).sizes(), (IntList{0, 3}));
}

template <class T>
class Nextafter : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Nextafter, Reals);

TYPED_TEST(Nextafter, IsThatOfTheCLibrary) {
  using Limits = std::numeric_limits<TypeParam>;
  std::vector<TypeParam> values = {0,
                                   Limits::denorm_min(),
                                   Limits::min(),
                                   Limits::min() - Limits::denorm_min(),
                                   Limits::max(),
                                   Limits::infinity(),
                                   1,
                                   TypeParam(1.5),
                                   2,
                                   2 - Limits::epsilon(),
                                   1 + Limits::epsilon()};
  // Every exponent, at both ends of its numbers.
  for (int e = Limits::min_exponent - Limits::digits; e < Limits::max_exponent; ++e) {
    const TypeParam power = std::ldexp(TypeParam(1), e);
    values.push_back(power);
    values.push_back(std::nextafter(power, TypeParam(0)));
    values.push_back(power * TypeParam(1.37));
  }
  const size_t half = values.size();
  for (size_t i = 0; i < half; ++i) values.push_back(-values[i]);
  const ScalarType type = sizeof(TypeParam) == 4 ? kFloat32 : kFloat64;
  const Tensor x = tensor(values, type);
  for (const TypeParam to : {TypeParam(0), TypeParam(-1), Limits::infinity(), -Limits::max()}) {
    const Tensor next = nextafter(x, tensor({to}, type));
    const TypeParam* data = next.template const_data<TypeParam>();
    for (size_t i = 0; i < values.size(); ++i) {
      const TypeParam want = std::nextafter(values[i], to);
      EXPECT_EQ(data[i], want) << values[i] << " to " << to;
      EXPECT_EQ(std::signbit(data[i]), std::signbit(want)) << values[i] << " to " << to;
    }
  }
  const Tensor nan = tensor({Limits::quiet_NaN()}, type);
  EXPECT_TRUE(std::isnan(nextafter(nan, tensor({1}, type)).item<double>()));
  EXPECT_TRUE(std::isnan(nextafter(tensor({1}, type), nan).item<double>()));
}

}  // namespace
}  // namespace mytorch
