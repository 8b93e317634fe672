// Results that other frameworks and libraries were reported to compute wrongly, and kin of these.
// Tests name the report, if there is one; expected values follow from the definitions.
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "mytorch/autograd/vmap.h"
#include "mytorch/mytorch.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

namespace F = nn::functional;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

// pytorch/pytorch#133998, numpy/numpy#12282: interpolation multiplied an infinite neighbour by a
// weight of 0, or subtracted infinities.
TEST(ReportedValues, QuantilesBesideInfinities) {
  for (const ScalarType type : {kFloat32, kFloat64}) {
    const auto q = [&](const std::vector<double>& of, double at, const char* how = "linear") {
      return quantile(tensor(of, type), at, {}, false, how).item<double>();
    };
    EXPECT_EQ(q({0, kInfinity}, 0.4), kInfinity);
    EXPECT_EQ(q({0, kInfinity}, 0.6), kInfinity);
    EXPECT_EQ(q({0, kInfinity}, 0), 0);
    EXPECT_EQ(q({0, kInfinity}, 1), kInfinity);
    EXPECT_EQ(q({0, kInfinity}, 1, "midpoint"), kInfinity);
    EXPECT_EQ(q({-kInfinity, 0}, 0.6), -kInfinity);
    EXPECT_EQ(q({-kInfinity, 0}, 1), 0);
    EXPECT_EQ(q({kInfinity, 5, 4}, 0.5), 5);
    EXPECT_EQ(q({0, kInfinity}, 0.6, "midpoint"), kInfinity);
    EXPECT_EQ(q({1, kInfinity, kInfinity}, 0.75), kInfinity);
    EXPECT_EQ(q({-kInfinity, -kInfinity, 3}, 0.25), -kInfinity);
    EXPECT_EQ(q({0, kInfinity}, 0.6, "nearest"), kInfinity);
  }
}

// Tarsnap/kivaloo#368: the difference of the neighbours overflowed.
TEST(ReportedValues, QuantilesBetweenHugeNeighbours) {
  EXPECT_EQ(quantile(tensor({-1e308, 1e308}, kFloat64), 0.5).item<double>(), 0);
  EXPECT_EQ(quantile(tensor({-3e38, 3e38}, kFloat32), 0.5).item<float>(), 0);
  EXPECT_EQ(quantile(tensor({-1e308, 1e308}, kFloat64), 0.5, {}, false, "midpoint").item<double>(),
            0);
  EXPECT_NEAR(quantile(tensor({-1e308, 1e308}, kFloat64), 0.75).item<double>() / 5e307, 1, 1e-15);
  EXPECT_EQ(lerp(tensor({-1e308}, kFloat64), tensor({1e308}, kFloat64), 0.5).item<double>(), 0);
}

// ml-explore/mlx#4528: reductions over dimensions of reversed arrays.
TEST(ReportedValues, ReductionsOfReversedTensors) {
  const Tensor x = arange(1, 2 * 1024 * 16 + 1, 1, kFloat64).view({2, 1024, 16}), y = flip(x, {0});
  const Values sums = values(y.sum(IntList{1}));
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 16; ++k) {
      // The mean of first and last of 1024 elements that are 16 apart.
      const double first = (1 - i) * 16384 + k + 1;
      EXPECT_EQ(sums[static_cast<size_t>(i * 16 + k)], 1024 * (first + 1023 * 8));
    }
  }
  EXPECT_EQ(values(flip(x, {1}).max().view({1})), Values({32768}));
  EXPECT_EQ(values(std::get<1>(flip(x, {1}).max(1)).view({-1}))[0], 0);
}

// pytorch/pytorch#5906 and roc-lang/roc#9814: products within the computation overflowed, and the
// least integer divided by -1 trapped.
TEST(ReportedValues, RemaindersOfLargeIntegers) {
  const int64_t large = 392486996410368;
  EXPECT_EQ(remainder(tensor({int64_t{-23500}}), large).item<int64_t>(), large - 23500);
  EXPECT_EQ(fmod(tensor({int64_t{-23500}}), large).item<int64_t>(), -23500);
  EXPECT_EQ(remainder(tensor({kLeast}), -1).item<int64_t>(), 0);
  EXPECT_EQ(fmod(tensor({kLeast}), -1).item<int64_t>(), 0);
  EXPECT_EQ(floor_divide(tensor({kLeast}), -1).item<int64_t>(), kLeast);  // wraps, as negation does
  EXPECT_EQ(div(tensor({kLeast}), -1, "trunc").item<int64_t>(), kLeast);
  EXPECT_EQ(floor_divide(tensor({-128}, kInt8), tensor({-1}, kInt8)).item<int64_t>(), -128);
  // Beyond 2^53, where doubles leave out integers.
  EXPECT_EQ(floor_divide(tensor({int64_t{9007199254740993}}), 1).item<int64_t>(), 9007199254740993);
  EXPECT_EQ(remainder(tensor({int64_t{9007199254740993}}), 10).item<int64_t>(), 3);
}

// microsoft/onnxruntime#2433, #20801: negative padding crops, and reflection leaves out the edge.
TEST(ReportedValues, PaddingCropsAndReflects) {
  const Tensor x = arange(12, kFloat64).view({1, 3, 4});
  EXPECT_EQ(values(pad(x, {-1, -2, -1, 0})), Values({5, 9}));
  EXPECT_EQ(values(pad(x, {-1, 1, 0, -2}, "constant", 7)), Values({1, 2, 3, 7}));
  EXPECT_EQ(values(pad(tensor({{{1.0, 1.2}, {2.3, 3.4}}}, kFloat64), {1, 1}, "reflect")),
            Values({1.2, 1.0, 1.2, 1.0, 3.4, 2.3, 3.4, 2.3}));
  EXPECT_EQ(values(pad(x, {3, 3}, "reflect").select(1, 0)), Values({3, 2, 1, 0, 1, 2, 3, 2, 1, 0}));
  EXPECT_ERROR(pad(x, {4, 0}, "reflect"), "[pad]");
  EXPECT_ERROR(pad(x, {-3, -2}), "[pad]");
}

// microsoft/onnxruntime#11496: bicubic interpolation to one pixel has its centre between the middle
// pixels.
TEST(ReportedValues, BicubicInterpolationToOnePixel) {
  const Tensor x = arange(16, kFloat64).view({1, 1, 4, 4});
  const double found = interpolate(x, IntList{1, 1}, {}, "bicubic", false).item<double>();
  EXPECT_NEAR(found, 7.5,
              1e-12);  // symmetric weights, whose mean of a linear image is that of its centre
}

// pytorch/pytorch#133267: 2^128 was computed in float32.
TEST(ReportedValues, LdexpHasTheRangeOfItsType) {
  EXPECT_EQ(ldexp(tensor({1.0}, kFloat64), tensor({128})).item<double>(), std::ldexp(1.0, 128));
  EXPECT_EQ(ldexp(tensor({1.5}, kFloat64), tensor({-1060})).item<double>(), std::ldexp(1.5, -1060));
  EXPECT_EQ(ldexp(tensor({1.0f}, kFloat32), tensor({127})).item<float>(), std::ldexp(1.0f, 127));
  EXPECT_EQ(ldexp(tensor({std::ldexp(1.0f, -140)}, kFloat32), tensor({200})).item<float>(),
            std::ldexp(1.0f, 60));
  EXPECT_EQ(ldexp(tensor({std::ldexp(1.0f, 100)}, kFloat32), tensor({-200})).item<float>(),
            std::ldexp(1.0f, -100));
}

// cupy/cupy#9757: comparisons of unsigned with negative numbers, and of integers beyond 2^53.
TEST(ReportedValues, ComparisonsAreThoseOfTheNumbers) {
  const Tensor bytes = tensor({0, 1, 200, 255}, kUInt8);
  EXPECT_EQ(values(bytes < -1), Values({0, 0, 0, 0}));
  EXPECT_EQ(values(bytes > -1), Values({1, 1, 1, 1}));
  EXPECT_EQ(values(bytes == 256), Values({0, 0, 0, 0}));
  EXPECT_EQ(values(bytes < 1000), Values({1, 1, 1, 1}));
  EXPECT_EQ(values(bytes > tensor({-1, -1, -1, -1}, kInt8)), Values({1, 1, 1, 1}));
  EXPECT_EQ(values(tensor({int64_t{9007199254740993}}) == 9007199254740992), Values({0}));
  EXPECT_EQ(values(tensor({int64_t{9007199254740993}}) > tensor({int64_t{9007199254740992}})),
            Values({1}));
}

// ml-explore/mlx#576, #1467, #4169: infinities and large numbers in logarithms of sums, in rows of
// any length.
TEST(ReportedValues, SoftmaxOfLargeAndInfiniteLogits) {
  const Values found =
      values(logsumexp(tensor({{kInfinity, 2.0, 3.0}, {4.0, 5.0, 6.0}}, kFloat64), {1}));
  EXPECT_EQ(found[0], kInfinity);
  EXPECT_NEAR(found[1], 6.40760596444438, 1e-12);
  for (const int64_t length : {1, 5, 127, 128, 1000, 5000}) {
    // Long rows as short ones.
    for (const double x : values(softmax(full({length}, -kInfinity), 0)))
      EXPECT_TRUE(std::isnan(x)) << length;
    EXPECT_EQ(logsumexp(full({length}, -kInfinity), {0}).item<double>(), -kInfinity) << length;
  }
  for (const double size : {1.0, 1e4, 1e8, 1e20, 1e36}) {
    const Values logs = values(log_softmax(tensor({size, size}, kFloat32), 0));
    EXPECT_NEAR(logs[0], -std::log(2.0), 1e-6) << size;
    EXPECT_NEAR(logs[1], -std::log(2.0), 1e-6) << size;
  }
}

// ml-explore/mlx#657: softmax of a slice.
TEST(ReportedValues, SoftmaxOfASlice) {
  manual_seed(3);
  const Tensor gates = rand({4, 4}, kFloat64), part = gates.narrow(1, 0, 2);
  EXPECT_NEAR(softmax(part, -1).sum().item<double>(), 4, 1e-12);
  EXPECT_EQ(values(softmax(part, -1)), values(softmax(part.contiguous(), -1)));
  EXPECT_EQ(values(softmax(gates.t().narrow(0, 1, 2), 0)),
            values(softmax(gates.t().narrow(0, 1, 2).contiguous(), 0)));
}

// pytorch/pytorch#1653: an index larger than its source was read past the source's end.
TEST(ReportedValues, ScatterRefusesAnIndexBeyondItsSource) {
  const Tensor index = tensor({{0, 0, 0, 0}, {1, 1, 1, 1}, {2, 2, 2, 2}});
  EXPECT_ERROR(scatter(zeros({3, 4}), 0, index, arange(1, 9, 1, kFloat32).view({2, 4})),
               "[scatter]");
  EXPECT_ERROR(scatter_add(zeros({3, 4}), 0, index, arange(1, 9, 1, kFloat32).view({2, 4})),
               "[scatter_add]");
}

// pytorch/pytorch#144539: values broadcast against the indexed elements, accumulated or not.
TEST(ReportedValues, IndexedWritesBroadcastTheirValues) {
  const Tensor x = zeros({5, 4, 3}, kFloat64), rows = tensor({{0, 2}, {1, 3}}),
               three = tensor({1.0, 2.0, 3.0}, kFloat64);
  EXPECT_EQ(index_put(x, {rows}, three, true).sum().item<double>(), 4 * 4 * 6);
  EXPECT_EQ(index_put(x, {rows}, three, false).sum().item<double>(), 4 * 4 * 6);
  EXPECT_EQ(index_put(x, {tensor({{0, 0}, {0, 3}})}, three, true).select(0, 0).sum().item<double>(),
            3 * 4 * 6);
}

// tracel-ai/burn#663: the stride of pooling is the kernel's size.
TEST(ReportedValues, PoolingStepsByItsKernel) {
  EXPECT_EQ(max_pool2d(ones({1, 32, 32, 3}), {2, 2}).sizes(), IntList({1, 32, 16, 1}));
  EXPECT_EQ(F::max_pool2d(ones({1, 32, 32, 3}), 2).sizes(), IntList({1, 32, 16, 1}));
  EXPECT_EQ(avg_pool2d(ones({1, 32, 32, 3}), {2, 2}).sizes(), IntList({1, 32, 16, 1}));
}

// tracel-ai/burn#2286: a convolution of several groups is the convolutions of its groups.
TEST(ReportedValues, GroupedConvolutionsAreThoseOfTheirGroups) {
  manual_seed(8);
  for (const int dims : {1, 2, 3}) {
    std::vector<int64_t> in = {2, 6}, kernel = {9, 2};
    for (int d = 0; d < dims; ++d) {
      in.push_back(7);
      kernel.push_back(3);
    }
    const Tensor x = randn(in, kFloat64), w = randn(kernel, kFloat64), bias = randn({9}, kFloat64);
    const auto conv = [&](const Tensor& x, const Tensor& w, const Tensor& b, int64_t groups) {
      if (dims == 1) return conv1d(x, w, b, {2}, {1}, {2}, groups);
      if (dims == 2) return conv2d(x, w, b, {2, 2}, {1, 1}, {2, 2}, groups);
      return conv3d(x, w, b, {2, 2, 2}, {1, 1, 1}, {2, 2, 2}, groups);
    };
    std::vector<Tensor> parts;
    for (int g = 0; g < 3; ++g)
      parts.push_back(
          conv(x.narrow(1, 2 * g, 2), w.narrow(0, 3 * g, 3), bias.narrow(0, 3 * g, 3), 1));
    EXPECT_TRUE(allclose(conv(x, w, bias, 3), cat(parts, 1), 1e-12, 1e-12)) << dims;
  }
}

// pytorch/pytorch#97083: a view sees what is written later.
TEST(ReportedValues, ViewsSeeLaterWrites) {
  Tensor a = tensor({1.0}, kFloat64).narrow(0, 0, 1);
  const Tensor b = a.squeeze();
  a.select(0, 0).fill_(0);
  EXPECT_EQ(b.item<double>(), 0);
  a.select(0, 0).fill_(2);
  EXPECT_EQ(b.item<double>(), 2);
}

// pytorch/pytorch#114216: a dilated window may consist of padding alone, which has no maximum.
TEST(ReportedValues, WindowsOfPaddingAreRefused) {
  EXPECT_ERROR(max_pool2d(rand({1, 1, 1, 8}), {3, 3}, {6, 6}, {1, 1}, {2, 2}, true),
               "has no element of the input");
  EXPECT_ERROR(max_pool2d(rand({1, 1, 3, 8}), {2, 3}, {2, 6}, {1, 1}, {4, 2}),
               "has no element of the input");
  EXPECT_ERROR(max_pool1d(rand({1, 1, 1}), {3}, {6}, {1}, {2}, true),
               "has no element of the input");
  EXPECT_ERROR(max_pool3d(rand({1, 1, 1, 8, 8}), {3, 3, 3}, {6, 6, 6}, {1, 1, 1}, {2, 2, 2}, true),
               "has no element of the input");
  // Positions of a window around the input, and one on it.
  const Tensor x = tensor({3.0, 1.0, 2.0}).reshape({1, 1, 3});
  EXPECT_EQ(values(max_pool1d(x, {3}, {1}, {2}, {2})), (std::vector<double>{3, 1, 3}));
}

// pytorch/pytorch#157097: a size of the result that is not the sum of repeats is refused.
TEST(ReportedValues, RepeatsHaveTheSizeThatIsSaid) {
  const Tensor x = arange(0, 3, kFloat64);
  EXPECT_ERROR(repeat_interleave(x, tensor({1, 2, 3}, kInt64), 0, 2),
               "output_size is 2, but the sum of repeats is 6");
  EXPECT_ERROR(repeat_interleave(x, tensor({1, 2, 3}, kInt64), 0, 7),
               "output_size is 7, but the sum of repeats is 6");
  EXPECT_ERROR(repeat_interleave(x, tensor({3, -2, 3}, kInt64), 0, 4),
               "repeats has a negative number");
  EXPECT_EQ(values(repeat_interleave(x, tensor({1, 0, 2}, kInt64), 0, 3)),
            (std::vector<double>{0, 2, 2}));
}

// tenstorrent/tt-metal#53282: products are those of the formula, from left to right.
TEST(ReportedValues, ScaledProductsOfLargeFactors) {
  const Tensor zero = zeros({1}), huge = full({1}, 1e30), tiny = full({1}, 1e-30);
  EXPECT_FLOAT_EQ(addcmul(zero, huge, huge, 1e-30).item<float>(), 1e30F);
  EXPECT_FLOAT_EQ(addcdiv(zero, huge, tiny, 1e-30).item<float>(), 1e30F);
}

// pytorch/pytorch#49844: a score of infinity that is right has no loss, not 0 * infinity, and a
// wrong one has an infinite loss.
TEST(ReportedValues, LossesOfInfiniteLogits) {
  for (const ScalarType type : {kFloat32, kFloat64, kBFloat16}) {
    const Tensor x = tensor({-kInfinity, kInfinity, -kInfinity, kInfinity}, type),
                 y = tensor({0.0, 1.0, 0.5, 0.0}, type);
    const Values expected = {0, 0, kInfinity, kInfinity};
    EXPECT_EQ(values(binary_cross_entropy_with_logits(x, y, {}, {}, "none")), expected);
    EXPECT_EQ(values(binary_cross_entropy_with_logits(x, y, {}, full({4}, 3, type), "none")),
              expected);
    EXPECT_EQ(values(multilabel_soft_margin_loss(x.narrow(0, 0, 2), y.narrow(0, 0, 2))), Values{0});
  }
  // Long vectors, whose loop is another one than that of the rest, and labels that are integers.
  const Tensor sign = arange(37, kFloat32).remainder(2);
  EXPECT_EQ(binary_cross_entropy_with_logits((sign - 0.5) * kInfinity, sign).item<float>(), 0);
  EXPECT_EQ(multilabel_soft_margin_loss(tensor({-kInfinity, kInfinity, 0.0}, kFloat64),
                                        tensor({0, 1, 1}, kInt64))
                .item<double>(),
            std::log(2.0) / 3);
  EXPECT_TRUE(
      std::isnan(binary_cross_entropy_with_logits(tensor({NAN}), zeros({1})).item<float>()));
}

// google-deepmind/optax#896: a class that neither the scores nor the target have adds nothing.
TEST(ReportedValues, CrossEntropyOfProbabilitiesOfMaskedClasses) {
  const Tensor x = tensor({{-kInfinity, 0.0}, {1.0, 1.0}, {-kInfinity, 0.0}}, kFloat64),
               p = tensor({{0.0, 1.0}, {0.0, 1.0}, {0.5, 0.5}}, kFloat64);
  const Values found = values(cross_entropy(x, p, {}, "none"));
  EXPECT_EQ(found[0], 0);
  EXPECT_NEAR(found[1], std::log(2.0), 1e-15);
  EXPECT_EQ(found[2], kInfinity);
  EXPECT_EQ(cross_entropy(x.narrow(0, 0, 1), p.narrow(0, 0, 1), ones({2}, kFloat64)).item<double>(),
            0);
}

// google-deepmind/optax#1786, p-e-w/heretic#348: the terms of impossible classes are 0.
TEST(ReportedValues, DivergenceOfImpossibleClasses) {
  const Tensor x = tensor({-1.0, -2.0, -kInfinity, -kInfinity}, kFloat64);
  EXPECT_EQ(values(kl_div(x, tensor({-kInfinity, 0.0, -kInfinity, -1.0}, kFloat64), "none", true)),
            Values({0, 2, 0, kInfinity}));
  EXPECT_EQ(values(kl_div(x, tensor({0.0, 1.0, 0.0, 0.5}, kFloat64), "none")),
            Values({0, 2, 0, kInfinity}));
  EXPECT_TRUE(
      std::isnan(kl_div(tensor({NAN}), tensor({-kInfinity}, kFloat32), "sum", true).item<float>()));
}

// pytorch/pytorch#10357, #185246: what is no probability.
TEST(ReportedValues, ProbabilitiesAreInTheUnitInterval) {
  for (const double p : {1.5, -0.5, std::numeric_limits<double>::quiet_NaN()}) {
    const Tensor x = tensor({0.5, p}, kFloat64);
    EXPECT_ERROR(bernoulli(x), "[bernoulli] the probabilities are from");
    EXPECT_ERROR(empty({2}).bernoulli_(x), "[bernoulli_] the probabilities are from");
  }
  EXPECT_EQ(values(bernoulli(tensor({0.0, 1.0}))), Values({0, 1}));
  EXPECT_EQ(bernoulli(empty({0})).numel(), 0);
}

// pytorch/pytorch#49998: negative standard deviations in a tensor.
TEST(ReportedValues, StandardDeviationsAreNotNegative) {
  const Tensor mean = zeros({2}), std = tensor({1.0, -1.0});
  EXPECT_ERROR(normal(mean, std), "[normal] std has the value -1");
  EXPECT_ERROR(normal(0, std), "[normal] std has the value -1");
  EXPECT_EQ(values(normal(mean, zeros({2}))), Values({0, 0}));
}

// pytorch/pytorch#49807: negative variances are mistakes, and are not raised to the bound.
TEST(ReportedValues, VariancesAreNotNegative) {
  const Tensor x = zeros({2});
  EXPECT_ERROR(gaussian_nll_loss(x, x, tensor({1.0, -1.0})),
               "[gaussian_nll_loss] var has negative values");
  EXPECT_TRUE(std::isfinite(gaussian_nll_loss(x, x, zeros({2})).item<float>()));
}

// pytorch/pytorch#173987: products of float16 that are scaled, or added to, before they are
// rounded.
TEST(ReportedValues, SumsOfFloat16AreRoundedOnce) {
  const auto half = [](IntList sizes, double value) { return full(sizes, value, kFloat16); };
  EXPECT_EQ(values(addmm(zeros({1, 1}, kFloat16), half({1, 64}, 300), half({64, 1}, 300), 1, 1e-3)),
            (std::vector<double>{5760}));
  EXPECT_EQ(values(baddbmm(zeros({1, 1, 1}, kFloat16), half({1, 1, 64}, 40), half({1, 64, 1}, 40),
                           0, 0.125)),
            (std::vector<double>{12800}));
  EXPECT_EQ(values(addmv(half({1}, -60000), half({1, 2}, 250), half({2}, 250))),
            (std::vector<double>{64992}));
  const Tensor normal = local_response_norm(half({1, 4, 1}, 300), 3);
  EXPECT_NEAR(normal.flatten()[0].item<double>(), 69.69, 0.1);
}

// python/cpython#134668: an interval whose length is no finite number gave its end alone.
TEST(ReportedValues, UniformIntervalsBeyondTheType) {
  EXPECT_THROW(empty({4}).uniform_(-3e38, 3e38), Error);
  EXPECT_THROW(empty({4}).uniform_(0, 1e39), Error);
  EXPECT_THROW(empty({4}, kFloat16).uniform_(0, 1e5), Error);
  const Tensor wide = empty({1000}, kFloat16).uniform_(-60000, 60000);
  EXPECT_TRUE(isfinite(wide).all().item<bool>());
  for (const ScalarType type : {kInt8, kUInt8, kInt16, kInt32, kInt64}) {
    EXPECT_GE(empty({100}, type).geometric_(1e-12).min().item<int64_t>(), 1) << dtype_name(type);
  }
}

// Functions at the ends of the range.
TEST(ReportedValues, FunctionsAtTheEndsOfTheRange) {
  EXPECT_EQ(special_log_ndtr(tensor({5e37})).item<float>(), 0);
  EXPECT_EQ(special_log_ndtr(tensor({1e307}, kFloat64)).item<double>(), 0);
  EXPECT_NEAR(special_modified_bessel_k0(tensor({1e-45})).item<double>(), 103.394924, 1e-4);
  EXPECT_EQ(special_modified_bessel_k1(tensor({1e-45})).item<double>(), kInfinity);
  EXPECT_EQ(hardswish(tensor({3e38})).item<float>(), 3e38f);
}

// Numbers were rounded to the type of 16-bit tensors before they took part: 65536 was infinite
// beside float16. Comparisons do round them: they look for elements that were rounded from 0.1.
TEST(ReportedValues, NumbersBesideTensorsOf16BitsKeepTheirPrecision) {
  for (const char* backend : {"reference", "cpu-openmp"}) {
    SCOPED_TRACE(backend);
    const Prefer prefer("cpu", backend);
    for (const ScalarType type : {kFloat16, kBFloat16}) {
      SCOPED_TRACE(type);
      const Values given = {0x1p-10, 0.5, -0.25, 0.1};
      const Tensor packed = tensor(given, type), spread = stack({packed, packed}, 1).select(1, 0);
      const Values held = values(packed);
      const auto expect = [&](const Tensor& found, double (*f)(double)) {
        Values expected;
        for (const double x : held) {
          expected.push_back(values(tensor({f(x)}, kFloat64).to(kFloat32).to(type))[0]);
        }
        EXPECT_EQ(values(found), expected);
      };
      for (const Tensor& x : {packed, spread}) {
        expect(x * 65540.0, [](double v) { return v * 65540; });
        expect(x * 1.001, [](double v) { return v * 1.001; });
        expect(x - 0.1, [](double v) { return v - 0.1; });
        expect(x / 131072, [](double v) { return v / 131072; });
        expect(0.1 / x, [](double v) { return 0.1 / v; });
        expect(x.clone().mul_(65540.0), [](double v) { return v * 65540; });
        EXPECT_EQ(values(x == 0.1), Values({0, 0, 0, 1}));
        EXPECT_EQ(values(x < 0.1), Values({1, 0, 1, 0}));
        EXPECT_EQ(values(x != 0.1), Values({1, 1, 1, 0}));
      }
    }
  }
  for (const CompileMode mode : {CompileMode::kExact, CompileMode::kDefault}) {
    const auto run = [](const Tensor& x) { return where((x + 0.0) == 0.1, x * 65540.0, x - 0.1); };
    const Tensor x = tensor({0x1p-10, 0.5, -0.25, 0.1}, kFloat16);
    auto compiled = compile(run, {.mode = mode});
    EXPECT_EQ(values(compiled(x)), values(run(x)));
    // A value that is computed in the same loop is rounded, too.
    auto ends =
        compile([](const Tensor& x) { return (clamp(x, -0.1, 0.1) == 0.1).sum(); }, {.mode = mode});
    for (int call = 0; call < 3; ++call) EXPECT_EQ(ends(x).item<int64_t>(), 2);
  }
}

// Coordinates that are NaN or infinite.
TEST(ReportedValues, SamplesAtCoordinatesThatAreNoNumbers) {
  for (const double at : {std::nan(""), kInfinity, -kInfinity}) {
    for (const char* padding : {"border", "reflection"}) {
      const Tensor found =
          grid_sample(ones({1, 1, 2, 2}), full({1, 1, 1, 2}, at), "bilinear", padding, false);
      EXPECT_EQ(found.item<float>(), 1) << at << " " << padding;
    }
  }
}

// pytorch/pytorch#92733: masks of integers were added to the scores.
TEST(ReportedValues, AttentionRefusesMasksOfIntegers) {
  nn::MultiheadAttention attention(4, 1);
  const Tensor x = ones({3, 1, 4});
  EXPECT_THROW(attention(x, x, x, {.key_padding_mask = zeros({1, 3}, kInt64)}), Error);
}

// Solvers have no rule of vmap: an example that does not exist is computed for the shapes.
TEST(ReportedValues, SolversUnderVmapOverNoExamples) {
  using Sizes = std::vector<int64_t>;
  const auto sizes_of = [](const auto& f) { return vmap(f)(zeros({0, 3, 3})).sizes().vec(); };
  EXPECT_EQ(sizes_of([](const Tensor& x) { return linalg_inv(x + eye(3)); }), (Sizes{0, 3, 3}));
  EXPECT_EQ(sizes_of([](const Tensor& x) { return linalg_eigvalsh(x); }), (Sizes{0, 3}));
  const Tensor w = eye(3).clone().requires_grad_(), xs = zeros({0, 3, 2}).requires_grad_();
  const auto f = [](const Tensor& a, const Tensor& b) { return linalg_solve(a, b); };
  vmap(f, {std::nullopt, 0})(w, xs).sum().backward();
  EXPECT_TRUE(equal(w.grad(), zeros({3, 3})));
  EXPECT_EQ(xs.grad().sizes().vec(), xs.sizes().vec());
}

// As in PyTorch, norms of matrices without elements are 0, except the smallest of no norms.
TEST(ReportedValues, NormsAndConditionsOfEmptyMatrices) {
  const auto empty = [](IntList sizes) { return zeros(sizes, kFloat64); };
  for (const double order : {1.0, -1.0, 2.0, -2.0, kInfinity, -kInfinity}) {
    EXPECT_EQ(linalg_cond(empty({0, 0}), order).item<double>(), 0) << order;
    EXPECT_EQ(values(linalg_cond(empty({2, 0, 0}), order)), (Values{0, 0})) << order;
    EXPECT_EQ(linalg_cond(empty({0, 3, 3}), order).sizes().vec(), std::vector<int64_t>{0}) << order;
    if (order < 0) continue;
    EXPECT_EQ(linalg_matrix_norm(empty({0, 2}), order).item<double>(), 0) << order;
    EXPECT_EQ(linalg_matrix_norm(empty({2, 0}), order).item<double>(), 0) << order;
    EXPECT_EQ(values(linalg_matrix_norm(empty({2, 1, 0, 1}), order)), (Values{0, 0})) << order;
    EXPECT_EQ(linalg_matrix_norm(empty({2, 0, 3}), order, {-2, -1}, true).sizes().vec(),
              (std::vector<int64_t>{2, 1, 1}));
  }
  for (const char* order : {"fro", "nuc"}) {
    EXPECT_EQ(linalg_cond(empty({0, 0}), order).item<double>(), 0) << order;
    EXPECT_EQ(values(linalg_cond(empty({2, 0, 0}), order)), (Values{0, 0})) << order;
    EXPECT_EQ(linalg_matrix_norm(empty({0, 2}), order).item<double>(), 0) << order;
  }
  EXPECT_EQ(linalg_cond(empty({2, 0})).item<double>(), 0);
  EXPECT_EQ(linalg_matrix_norm(empty({0, 2}), -1).item<double>(), 0);
  EXPECT_EQ(linalg_matrix_norm(empty({2, 0}), -kInfinity).item<double>(), 0);
  EXPECT_ERROR(linalg_matrix_norm(empty({2, 0}), -1), "smallest of no column norms");
  EXPECT_ERROR(linalg_matrix_norm(empty({0, 2}), -kInfinity), "smallest of no row norms");
  EXPECT_ERROR(linalg_matrix_norm(empty({2, 1, 0, 1}), -2),
               "self has shape (2, 1, 0, 1), and order -2 is the smallest of no singular values");
  EXPECT_ERROR(linalg_cond(empty({0, 0}), 3), "ord is 3");
}

TEST(ReportedValues, FractionalPoolingOfEmptyBatches) {
  const auto [plane, places] =
      fractional_max_pool2d(zeros({0, 2, 4, 5}), {2, 2}, {2, 3}, rand({0, 2, 2}));
  EXPECT_EQ(plane.sizes().vec(), (std::vector<int64_t>{0, 2, 2, 3}));
  EXPECT_EQ(places.sizes().vec(), (std::vector<int64_t>{0, 2, 2, 3}));
  EXPECT_EQ(std::get<0>(fractional_max_pool3d(zeros({0, 2, 4, 4, 4}), {2, 2, 2}, {2, 2, 2},
                                              rand({0, 2, 3})))
                .sizes()
                .vec(),
            (std::vector<int64_t>{0, 2, 2, 2, 2}));
}

}  // namespace
}  // namespace mytorch
