// Gradients that other frameworks were reported to compute wrongly, and kin of these. Tests name
// the report, if there is one; expected values follow from the formulas.
#include <cmath>
#include <complex>
#include <functional>
#include <limits>

#include "mytorch/autograd.h"
#include "mytorch/autograd/checkpoint.h"
#include "mytorch/autograd/functional.h"
#include "mytorch/autograd/gradcheck.h"
#include "mytorch/autograd/vmap.h"
#include "mytorch/mytorch.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Values grad_of(const std::function<Tensor(const Tensor&)>& f, const Tensor& at) {
  const Tensor x = at.detach().clone().requires_grad_();
  f(x).sum().backward();
  return values(x.grad());
}

// pytorch/pytorch#195075: a vectorized loop and the loop over its remainder took different branches
// at NaN, so that equal elements of one tensor had different gradients.
TEST(ReportedGradients, EqualElementsHaveEqualGradientsAtNaN) {
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> functions = {
      {"hardtanh", [](const Tensor& x) { return hardtanh(x); }},
      {"relu6", [](const Tensor& x) { return relu6(x); }},
      {"hardshrink", [](const Tensor& x) { return hardshrink(x); }},
      {"softshrink", [](const Tensor& x) { return softshrink(x); }},
      {"threshold", [](const Tensor& x) { return threshold(x, 0.5, 2); }},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x); }},
      {"elu", [](const Tensor& x) { return elu(x); }},
      {"celu", [](const Tensor& x) { return celu(x); }},
      {"hardswish", [](const Tensor& x) { return hardswish(x); }},
      {"hardsigmoid", [](const Tensor& x) { return hardsigmoid(x); }},
      {"softplus", [](const Tensor& x) { return softplus(x); }},
      {"logit", [](const Tensor& x) { return logit(x, 0.1); }},
      {"clamp", [](const Tensor& x) { return clamp(x, -1, 1); }},
  };
  for (const auto& [name, f] : functions) {
    for (const ScalarType type : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
      const Values all = grad_of(f, full({67}, kNaN, type));
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_TRUE(all[i] == all[0] || (std::isnan(all[i]) && std::isnan(all[0])))
            << name << " " << type << " element " << i << ": " << all[i] << ", the first one "
            << all[0];
      }
    }
  }
}

// pytorch/pytorch#192521, #192540: second derivatives of determinants were NaN at equal singular
// values, and differed between the orders in which forward and backward were applied.
TEST(ReportedGradients, HessianOfADeterminantAtEqualSingularValues) {
  const auto det = [](const Tensor& a) { return linalg_det(a); };
  // d2 det / da_ij da_kl at the identity: 1 for i = j, k = l, i != k; -1 for i = l, j = k, i != j.
  const Values found = values(autograd::hessian(det, eye(3, kFloat64)));
  const auto at = [&](int i, int j, int k, int l) {
    return found[static_cast<size_t>(((i * 3 + j) * 3 + k) * 3 + l)];
  };
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 3; ++k) {
        for (int l = 0; l < 3; ++l) {
          double expected = 0;
          if (i == j && k == l && i != k) expected = 1;
          if (i == l && j == k && i != j) expected = -1;
          EXPECT_NEAR(at(i, j, k, l), expected, 1e-12) << i << j << k << l;
        }
      }
    }
  }
  // The derivative along v of the derivative along v: 2 (v00 v11 - v01 v10) for 2 x 2.
  const Tensor a = tensor({{1.3, 0.4}, {-0.7, 0.9}}, kFloat64),
               v = tensor({{0.3, -1.0}, {0.5, 2.0}}, kFloat64);
  const auto along = [&](const Tensor& x) {
    autograd::FunctionalOptions options;
    options.create_graph = true;
    return std::get<1>(autograd::jvp(det, x, v, options));
  };
  EXPECT_NEAR(std::get<1>(autograd::jvp(along, a, v)).item<double>(), 2 * (0.3 * 2.0 + 1.0 * 0.5),
              1e-12);
}

// jax-ml/jax#21723, #4177: the gradient of a squared norm was NaN at 0, where it is 0.
TEST(ReportedGradients, SquaredNormAtZero) {
  for (const ScalarType type : {kFloat32, kFloat64}) {
    const auto squared = [](const Tensor& x) { return linalg_vector_norm(x).pow(2); };
    EXPECT_EQ(grad_of(squared, zeros({3}, type)), Values({0, 0, 0}));
    EXPECT_EQ(grad_of([](const Tensor& x) { return linalg_vector_norm(x); }, zeros({3}, type)),
              Values({0, 0, 0}));
    EXPECT_EQ(grad_of([](const Tensor& x) { return norm(x, 2, {1}); }, zeros({2, 2}, type)),
              Values({0, 0, 0, 0}));
  }
}

// jax-ml/jax#939: the gradient of a log-sum-exp of large negative terms was NaN once compiled.
TEST(ReportedGradients, LogSumExpBesideANormOfOneElement) {
  const auto f = [](const Tensor& loc, const Tensor& scale) {
    const Tensor x = loc + scale * tensor({-1.5, 0.0}, kFloat32);
    const Tensor first = ((linalg_vector_norm(x) - 2) / 0.4).pow(2) * 0.5;
    const Tensor second = ((x.narrow(0, 0, 1) + tensor({-2.0, 2.0}, kFloat32)) / 0.6).pow(2) * -0.5;
    return first - logsumexp(second, {0});
  };
  Tensor loc = zeros({2}).requires_grad_(), scale = ones({2}).requires_grad_();
  f(loc, scale).backward();
  const Values by_loc = values(loc.grad()), by_scale = values(scale.grad());
  // x0 = -1.5: (1.5 - 2) / 0.16 * -1 from the norm, and the weighted mean of (x0 + s) / 0.36 from
  // the other term.
  const double a = std::exp(-0.5 * std::pow(-3.5 / 0.6, 2)),
               b = std::exp(-0.5 * std::pow(0.5 / 0.6, 2));
  const double expected = 3.125 + (a * -3.5 + b * 0.5) / (a + b) / 0.36;
  EXPECT_NEAR(by_loc[0], expected, 1e-4);
  EXPECT_EQ(by_loc[1], 0);
  EXPECT_NEAR(by_scale[0], -1.5 * expected, 1e-4);
  EXPECT_EQ(by_scale[1], 0);
}

// pytorch/pytorch#65911: pinv was differentiated through singular values, which fails where several
// of them are 0, though it is smooth where the rank stays the same.
TEST(ReportedGradients, PseudoInverseOfADeficientMatrix) {
  manual_seed(5);
  const Tensor a = randn({7, 2}, kFloat64), b = randn({6, 2}, kFloat64);
  EXPECT_TRUE(autograd::gradcheck(
      [](const std::vector<Tensor>& x) {
        return std::vector<Tensor>{linalg_pinv(matmul(x[0], x[1].t()), std::nullopt, 1e-10)};
      },
      {a.requires_grad_(), b.requires_grad_()}));
}

// pytorch/pytorch#49886: the gradient of a singular value decomposition was NaN for matrices with
// several singular values of 0, also for functions that do not depend on the choice of vectors.
TEST(ReportedGradients, SumOfSingularValuesOfADeficientMatrix) {
  manual_seed(6);
  const Tensor u = std::get<0>(linalg_qr(randn({6, 2}, kFloat64))),
               v = std::get<0>(linalg_qr(randn({5, 2}, kFloat64)));
  const Tensor a = matmul(u * tensor({3.0, 2.0}, kFloat64), v.t());
  Tensor x = a.clone().requires_grad_();
  // The squares of the singular values sum to the squares of the elements.
  linalg_svdvals(x).pow(2).sum().backward();
  const Values found = values(x.grad()), expected = values(a * 2);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-10);
}

// jax-ml/jax#8732: gradients of decompositions were NaN where values are equal, also of functions
// that do not tell these apart. The largest value is smooth wherever it is unique.
TEST(ReportedGradients, LargestSingularValuesAndEigenvaluesAboveEqualOnes) {
  const auto largest = [](Tensor (*values_of)(const Tensor&)) {
    return [values_of](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{values_of(in[0]).amax({-1})};
    };
  };
  const Tensor square = diag(tensor({3.0, 1.0, 1.0, 1.0}));
  const Tensor wide = pad(diag(tensor({2.0, 0.0, 0.0})), {0, 2});
  for (const ScalarType type : {kFloat64, kComplex128}) {
    for (const Tensor& x : {square, wide, wide.mT().contiguous()}) {
      const auto f = largest([](const Tensor& a) { return linalg_svdvals(a); });
      EXPECT_EQ(autograd::gradgradcheck(f, {x.to(type).clone().requires_grad_()}).message, "");
    }
    const auto f = largest([](const Tensor& a) { return linalg_eigvalsh((a + a.mH()) * 0.5); });
    EXPECT_EQ(autograd::gradgradcheck(f, {square.to(type).clone().requires_grad_()}).message, "");
  }
}

// pytorch/pytorch#1712: second derivatives of functions that select elements.
TEST(ReportedGradients, SecondDerivativesOfSelections) {
  const auto check = [](const std::function<Tensor(const Tensor&)>& select,
                        const Values& expected) {
    const Tensor x = tensor({3.0, -1.0, 2.0, 5.0}, kFloat64).requires_grad_();
    const Tensor g = autograd::grad({select(x).pow(3).sum()}, {x}, {}, {.create_graph = true})[0];
    EXPECT_EQ(values(autograd::grad({g.sum()}, {x})[0]), expected);
  };
  check([](const Tensor& x) { return std::get<0>(x.max(0)); }, {0, 0, 0, 30});
  check([](const Tensor& x) { return std::get<0>(x.min(0)); }, {0, -6, 0, 0});
  check([](const Tensor& x) { return std::get<0>(kthvalue(x, 3)); }, {18, 0, 0, 0});
  check([](const Tensor& x) { return std::get<0>(topk(x, 2)); }, {18, 0, 0, 30});
  check([](const Tensor& x) { return std::get<0>(median(x, 0)); }, {0, 0, 12, 0});
  check([](const Tensor& x) { return index_select(x, 0, tensor({1, 1, 0})); }, {18, -12, 0, 0});
  check([](const Tensor& x) { return masked_select(x, x > 2); }, {18, 0, 0, 30});
}

// pytorch/pytorch#57006, #473, #146299: of equal indices, the last one is written, and alone has a
// gradient.
TEST(ReportedGradients, OverwrittenValuesHaveNone) {
  const auto of = [](const Tensor& source, const Tensor& weights, auto&& write) {
    const Tensor v = source.clone().requires_grad_();
    (write(v) * weights).sum().backward();
    return values(v.grad());
  };
  const Tensor index = tensor({2, 0, 2, 2}, kInt64), weights = tensor({1.0, 10.0, 100.0}, kFloat64);
  const Tensor four = ones({4}, kFloat64), empty = zeros({3}, kFloat64);
  const Values last = {0, 1, 0, 100};
  EXPECT_EQ(of(four, weights, [&](const Tensor& v) { return scatter(empty, 0, index, v); }), last);
  EXPECT_EQ(of(four, weights, [&](const Tensor& v) { return index_put(empty, {index}, v); }), last);
  EXPECT_EQ(of(four, weights, [&](const Tensor& v) { return index_copy(empty, 0, index, v); }),
            last);
  EXPECT_EQ(of(tensor(2.0, kFloat64), weights,
               [&](const Tensor& v) { return index_fill(empty, 0, index, v); }),
            Values{101});
  EXPECT_EQ(of(ones({1, 4}, kFloat64), weights.unsqueeze(0),
               [&](const Tensor& v) { return max_unpool1d(v, index.unsqueeze(0), {3}); }),
            last);
  // Rows and columns, and a source that is larger than the index.
  const Tensor places = tensor({1, 0, 1, 1, 0, 0}, kInt64).reshape({2, 3});
  EXPECT_EQ(of(ones({3, 4}, kFloat64), arange(1, 9, kFloat64).reshape({2, 4}),
               [&](const Tensor& v) {
                 return scatter(zeros({2, 4}, kFloat64), 0, places, v);
               }),
            (Values{0, 0, 7, 0, 5, 2, 3, 0, 0, 0, 0, 0}));
}

// pytorch/pytorch#49844: gradients of losses at scores that are infinite and right.
TEST(ReportedGradients, LossesOfInfiniteLogits) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = tensor({-inf, inf, 0.0}, kFloat64), y = tensor({0.0, 1.0, 1.0}, kFloat64);
  const auto loss = [&](const Tensor& logits, const Tensor& weight) {
    return binary_cross_entropy_with_logits(logits, y, {}, weight, "sum");
  };
  const Tensor two = full({3}, 2, kFloat64);
  EXPECT_EQ(grad_of([&](const Tensor& v) { return loss(v, {}); }, x), Values({0, 0, -0.5}));
  EXPECT_EQ(grad_of([&](const Tensor& v) { return loss(v, two); }, x), Values({0, 0, -1}));
  EXPECT_EQ(grad_of([&](const Tensor& v) { return loss(x, v); }, two),
            Values({0, 0, std::log(2.0)}));
  EXPECT_EQ(grad_of([&](const Tensor& v) { return multilabel_soft_margin_loss(v, y) * 3; }, x),
            Values({0, 0, -0.5}));
}

// google-deepmind/optax#896: gradients at a class that neither the scores nor the target have.
TEST(ReportedGradients, CrossEntropyOfProbabilitiesOfMaskedClasses) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = tensor({{-inf, 0.0}}, kFloat64), p = tensor({{0.0, 1.0}}, kFloat64);
  EXPECT_EQ(grad_of([&](const Tensor& v) { return cross_entropy(v, p); }, x), Values({0, 0}));
  EXPECT_EQ(grad_of([&](const Tensor& v) { return cross_entropy(x, v); }, p), Values({0, 0}));
  // Where the score is finite, the gradient of a probability of 0 is that of any other.
  EXPECT_EQ(grad_of(
                [&](const Tensor& v) {
                  return cross_entropy(tensor({{0.0, 0.0}}, kFloat64), v);
                },
                p),
            Values({std::log(2.0), std::log(2.0)}));
}

// google-deepmind/optax#1786: gradients at a class that is impossible in the target.
TEST(ReportedGradients, DivergenceOfImpossibleClasses) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = tensor({-1.0, -2.0}, kFloat64), log_p = tensor({-inf, 0.0}, kFloat64);
  EXPECT_EQ(grad_of([&](const Tensor& v) { return kl_div(v, log_p, "sum", true); }, x),
            Values({0, -1}));
  EXPECT_EQ(grad_of([&](const Tensor& v) { return kl_div(x, v, "sum", true); }, log_p),
            Values({0, 3}));
  EXPECT_EQ(grad_of(
                [&](const Tensor& v) {
                  return kl_div(v, tensor({0.0, 1.0}, kFloat64), "sum");
                },
                log_p),
            Values({0, -1}));
}

// google/jax's FAQ on where, google-deepmind/optax#1786: a term that does not count was NaN in the
// gradient, as its logarithm of 0 was differentiated, too.
TEST(ReportedGradients, PoissonLossOfCountsOfZero) {
  const Tensor x = zeros({3}, kFloat64), counts = tensor({0.0, 1.0, 2.0}, kFloat64);
  const Values found = grad_of(
      [&](const Tensor& v) { return poisson_nll_loss(x, v, true, true, 1e-8, "sum"); }, counts);
  EXPECT_EQ(found[0], 0);
  EXPECT_EQ(found[1], 0);
  EXPECT_NEAR(found[2], std::log(2.0) + 0.25, 1e-15);  // of n log n - n + log(2 pi n) / 2
}

// pytorch/pytorch#26546: values that a checkpoint computes again, and the function then overwrites.
TEST(ReportedGradients, CheckpointsSeeWritesToSavedValues) {
  const auto f = [](bool overwrite) {
    const Tensor x = tensor({2.}).requires_grad_();
    autograd::checkpoint(
        [=](const std::vector<Tensor>& in) {
          Tensor y = in[0].exp();
          if (overwrite) {
            y.mul_(2);
          } else {
            y = y * 2;
          }
          return std::vector<Tensor>{y};
        },
        {x})[0]
        .sum()
        .backward();
    return x.grad().item<double>();
  };
  EXPECT_NEAR(f(false), 2 * std::exp(2), 1e-5);
  EXPECT_THROW(f(true), Error);
}

// The norm of complex vectors is smooth where an element is 0.
TEST(ReportedGradients, SecondDerivativesOfComplexNormsBesideZero) {
  const Tensor z =
      tensor(std::vector<std::complex<double>>{{0, 0}, {3, 4}}, kComplexDouble).requires_grad_();
  const Tensor first = autograd::grad({linalg_vector_norm(z)}, {z}, {}, {.create_graph = true})[0];
  const Tensor second = autograd::grad({real(first)[0]}, {z})[0];
  EXPECT_NEAR(real(second)[0].item<double>(), 0.2, 1e-12);
  EXPECT_NEAR(real(second)[1].item<double>(), 0, 1e-12);
  const Tensor rows = randn({3, 4, 5}, kComplexDouble, {}, Generator(1));
  for (const bool keep : {false, true}) {
    const Tensor expected = linalg_vector_norm(abs(rows), 2, {-1, 0}, keep);
    EXPECT_TRUE(allclose(linalg_vector_norm(rows, 2, {-1, 0}, keep), expected));
    const Tensor one = rows.flatten()[0];
    EXPECT_TRUE(allclose(linalg_vector_norm(one, 2, {-1}, keep), abs(one)));
  }
}

// In-place products under vmap overwrote the factor that backward reads.
TEST(ReportedGradients, InPlaceProductsUnderVmap) {
  const auto f = [](const Tensor& r) {
    Tensor y = r * 2;
    y.mul_(r);
    return y.sum();
  };
  const Tensor x = tensor({{1., 2.}, {3., 4.}}).requires_grad_();
  autograd::vmap(f)(x).sum().backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{4, 8, 12, 16}));
  const auto square = [](const Tensor& r) {
    Tensor y = r * 2;
    y.mul_(y);
    return y.sum();
  };
  x.set_grad({});
  autograd::vmap(square)(x).sum().backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{8, 16, 24, 32}));
}

// The derivatives of erfcx and log_ndtr cancelled far out: terms of about 1 left 1e-4 and less.
// Expected values are mpmath's.
TEST(ReportedGradients, ScaledErrorFunctionsFarOut) {
  struct Point {
    double x, first, second;
  };
  const auto expect = [](const std::function<Tensor(const Tensor&)>& f, const Point& point) {
    for (const ScalarType type : {kFloat32, kFloat64}) {
      SCOPED_TRACE(testing::Message() << type << " at " << point.x);
      const Tensor x = tensor({point.x}, type).requires_grad_();
      const Tensor first = autograd::grad({f(x).sum()}, {x}, {}, {.create_graph = true})[0];
      const Tensor second = autograd::grad({first.sum()}, {x})[0];
      // Below 5, where the plain formula serves, a few digits go.
      const double precision = type == kFloat64 ? 1e-12 : std::abs(point.x) < 5 ? 1e-3 : 1e-5;
      EXPECT_NEAR(first.item<double>() / point.first, 1, precision);
      EXPECT_NEAR(second.item<double>() / point.second, 1, precision);
    }
  };
  for (const Point& point : {Point{3, -0.054372260007172871, 0.031768742319742673},
                             {4.5, -0.026015928630939816, 0.010826250869224492},
                             {5.5, -0.017794764701022603, 0.0061820250877495398},
                             {40, -0.00035228842528748392, 1.7597943756913901e-5},
                             {1000, -5.6418873726549667e-7, 1.1283757819707055e-9}}) {
    expect([](const Tensor& x) { return special_erfcx(x); }, point);
  }
  for (const Point& point : {Point{-3, 3.2830986549304365, -0.92944081321473188},
                             {-10, 10.098093233962512, -0.99055462217434374},
                             {-60, 60.016657420241125, -0.99972268411658523},
                             {-1000, 1000.000999998, -0.99999900000599995}}) {
    expect([](const Tensor& x) { return special_log_ndtr(x); }, point);
  }
}

// A zero makes norms of negative order 0, whatever the other elements.
TEST(ReportedGradients, SecondDerivativesOfNormsOfNegativeOrderAtZero) {
  for (const double order : {-1.0, -2.0, -0.5}) {
    const Tensor x = leaf({0, 2, -3});
    const Tensor norm = linalg_vector_norm(x, order);
    const Tensor first = autograd::grad({norm}, {x}, {}, {.create_graph = true})[0];
    EXPECT_EQ(values(first), Values({0, 0, 0}));
    EXPECT_EQ(values(autograd::grad({first.sum()}, {x})[0]), Values({0, 0, 0}));
  }
}

// Random numbers that overwrite a tensor have no derivative by what was there: no gradient arrives.
TEST(ReportedGradients, RandomNumbersInPlaceHaveNoGradient) {
  const std::vector<std::pair<const char*, std::function<void(const Tensor&)>>> fills = {
      {"normal_", [](const Tensor& x) { x.normal_(); }},
      {"uniform_", [](const Tensor& x) { x.uniform_(); }},
      {"random_", [](const Tensor& x) { x.random_(0, 5); }},
      {"bernoulli_", [](const Tensor& x) { x.bernoulli_(0.5); }},
      {"exponential_", [](const Tensor& x) { x.exponential_(); }},
      {"fill_", [](const Tensor& x) { x.fill_(2); }},
  };
  for (const auto& [name, fill] : fills) {
    const Tensor w = full({4}, 3.0, kFloat64).requires_grad_();
    const Tensor whole = w * w;
    fill(whole);
    whole.sum().backward();
    EXPECT_FALSE(w.grad().defined()) << name;
    w.set_grad({});
    const Tensor part = w * 2;
    fill(part.slice(0, 0, 1));
    part.sum().backward();
    EXPECT_EQ(values(w.grad()), (Values{0, 2, 2, 2})) << name;
    EXPECT_THROW(fill(w), Error) << name;
    EXPECT_THROW(fill(w.slice(0, 0, 1)), Error) << name;
    const NoGradGuard no_grad;
    fill(w);
  }
  const Tensor z = zeros({2}, kComplex128).requires_grad_();
  const Tensor noise = z * 2;
  noise.normal_();
  real(noise).sum().backward();
  EXPECT_FALSE(z.grad().defined());
}

// An exponential of the arm that is not taken overflows.
TEST(ReportedGradients, SecondDerivativesOfUnitsFarOut) {
  const auto second = [](const std::function<Tensor(const Tensor&)>& f, const Tensor& at) {
    const Tensor x = at.clone().requires_grad_();
    const Tensor slope = autograd::grad({f(x).sum()}, {x}, {}, {.create_graph = true})[0];
    return values(autograd::grad({slope.sum()}, {x})[0]);
  };
  for (const ScalarType type : {kFloat32, kFloat64}) {
    const Tensor far = tensor({60.0, 100.0, 800.0, 1e30}, type);
    EXPECT_EQ(second([](const Tensor& x) { return elu(x, 1.5); }, far), (Values{0, 0, 0, 0}));
    EXPECT_EQ(second([](const Tensor& x) { return selu(x); }, far), (Values{0, 0, 0, 0}));
    EXPECT_EQ(second([](const Tensor& x) { return celu(x, 0.5); }, far), (Values{0, 0, 0, 0}));
    EXPECT_EQ(second([](const Tensor& x) { return special_log_ndtr(x); }, far),
              (Values{0, 0, 0, 0}));
  }
  // -r (x + r), where r is the first derivative, by mpmath.
  const Values curves = second([](const Tensor& x) { return special_log_ndtr(x); },
                               tensor({-1e4, -3.0, 0.5, 1.0, 1.5, 5.0, 14.0}, kFloat64));
  const Values expected = {-0.9999999900000006,    -0.92944081321473188, -0.5138245643036329,
                           -0.3703137142233946,    -0.2274472205207062,  -7.4336019148607112e-6,
                           -1.5352491831445598e-42};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(curves[i], expected[i], 1e-7 * std::abs(expected[i])) << i;
  }
}

// Results that no element counts for are constant: their gradients are zeros, not missing.
TEST(ReportedGradients, ResultsOfNoElementsKeepTheirHistory) {
  const auto check = [](const char* name, std::vector<Tensor> inputs,
                        const std::function<Tensor(const std::vector<Tensor>&)>& f) {
    for (Tensor& input : inputs) input = input.clone().requires_grad_();
    const Tensor y = f(inputs);
    ASSERT_TRUE(y.requires_grad()) << name;
    (y.is_complex() ? real(y) : y).sum().backward();
    for (const Tensor& input : inputs) {
      ASSERT_TRUE(input.grad().defined()) << name;
      EXPECT_TRUE(equal(input.grad(), zeros_like(input))) << name << " " << input.grad();
    }
  };
  const Tensor rows = tensor({{1.0, kNaN}, {2.0, 3.0}}, kFloat64);
  for (const char* mode : {"sum", "mean", "max"}) {
    const auto bags = [&](const Tensor& indices, const Tensor& offsets, int64_t padding,
                          bool ends) {
      check(mode, {rows}, [&](const std::vector<Tensor>& in) {
        return embedding_bag(in[0], indices, offsets, false, mode, {}, ends, padding);
      });
    };
    bags(zeros({0, 3}, kInt64), {}, -1, false);
    bags(zeros({3, 0}, kInt64), {}, -1, false);
    bags(ones({2, 3}, kInt64), {}, 1, false);
    bags(zeros({0}, kInt64), zeros({2}, kInt64), -1, false);
    bags(zeros({0}, kInt64), zeros({1}, kInt64), -1, true);
  }
  check("weighted bags", {zeros({0, 3}, kFloat64)}, [&](const std::vector<Tensor>& in) {
    return embedding_bag(rows, zeros({0, 3}, kInt64), {}, false, "sum", in[0]);
  });
  for (int64_t mode = 0; mode < 3; ++mode) {
    for (int64_t padding = 0; padding < 3; ++padding) {
      // The nearest elements do not depend on the grid.
      const auto sample = [&](const char* name, const Tensor& input, const Tensor& grid) {
        std::vector<Tensor> inputs = {input};
        if (mode != 1) inputs.push_back(grid);
        check(name, inputs, [&](const std::vector<Tensor>& in) {
          const Tensor& points = mode == 1 ? grid : in[1];
          return input.dim() == 4 ? grid_sampler_2d(in[0], points, mode, padding, false)
                                  : grid_sampler_3d(in[0], points, mode, padding, true);
        });
      };
      const Tensor plane = full({1, 2, 3, 3}, kNaN, kFloat64);
      sample("no planes", plane.narrow(0, 0, 0), zeros({0, 2, 2, 2}, kFloat64));
      sample("no channels", plane.narrow(1, 0, 0), zeros({1, 2, 2, 2}, kFloat64));
      sample("no points", plane, zeros({1, 0, 2, 2}, kFloat64));
      if (mode == 2) continue;
      sample("no volumes", zeros({0, 2, 3, 3, 3}, kFloat64), zeros({0, 2, 2, 2, 3}, kFloat64));
    }
  }
  const Tensor none = zeros({0, 2}, kComplex64);
  check("prod", {none}, [](const std::vector<Tensor>& in) { return prod(in[0]); });
  check("prod of rows", {none}, [](const std::vector<Tensor>& in) { return prod(in[0], 0, true); });
  EXPECT_TRUE(equal(prod(none), ones({}, kComplex64)));
  EXPECT_TRUE(equal(prod(none, 0), ones({2}, kComplex64)));
  check("norms", {zeros({0}), zeros({0, 2})},
        [](const std::vector<Tensor>& in) { return get_total_norm({in[0]}, 2.0) + in[1].sum(); });
  check("norm", {zeros({0, 2}, kFloat64)},
        [](const std::vector<Tensor>& in) { return linalg_matrix_norm(in[0], 2); });
  check("condition", {zeros({2, 0, 0}, kFloat64)},
        [](const std::vector<Tensor>& in) { return linalg_cond(in[0]); });
}

}  // namespace
}  // namespace mytorch
