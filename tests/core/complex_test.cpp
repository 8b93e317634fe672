// Complex tensors: literals, promotion, views, copies, printing, and every operator that computes
// with them against std::complex.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "mytorch/call.h"
#include "mytorch/generator.h"
#include "mytorch/ops.h"
#include "mytorch/tensor.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch {
namespace {

using namespace std::complex_literals;
using Z = std::complex<double>;
using C = std::complex<float>;
using ComplexNumbers = std::vector<Z>;

// Points in every quadrant, on both axes, and beside branch points.
const ComplexNumbers kPoints = {{0.5, 0.25},  {-0.75, 1.5}, {-1.25, -0.5}, {2, -1},
                                {0.3, 0},     {-0.4, 0.0},  {0, 1.75},     {0, -0.6},
                                {1e-3, 2e-3}, {3.5, 2.5},   {1, 1e-4},     {-2.5, 0.125},
                                {1e-9, 1e-9}, {-1, 1},      {0.9, -0.9}};

Tensor points(ScalarType type = kComplex128) { return tensor(kPoints, type); }
ComplexNumbers numbers(const Tensor& t) { return t.to_vector<Z>(); }

template <class F>
void refuses(F call, ErrorCode code, const char* part) {
  testing::expect_error(code, {part}, call);
}

void expect_near(const ComplexNumbers& found, const ComplexNumbers& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_LE(std::abs(found[i] - expected[i]), tolerance * std::max(1e-30, std::abs(expected[i])))
        << what << " " << i << ": " << found[i] << ", expected " << expected[i];
  }
}

TEST(Complex, TypesAndTheirParts) {
  EXPECT_EQ(scalar_type_of<C>(), kComplex64);
  EXPECT_EQ(scalar_type_of<Z>(), kComplex128);
  EXPECT_TRUE(is_complex(kComplex64));
  EXPECT_FALSE(is_floating_point(kComplex64));
  EXPECT_FALSE(is_complex(kFloat64));
  EXPECT_EQ(to_real(kComplex128), kFloat64);
  EXPECT_EQ(to_complex(kFloat16), kComplex64);
  EXPECT_EQ(element_size(kComplex128), 16);
  EXPECT_STREQ(dtype_name(kComplex64), "complex64");
}

TEST(Complex, LiteralsAndValues) {
  const Tensor one = tensor(C(1, 2));
  EXPECT_EQ(one.dtype(), kComplex64);
  EXPECT_EQ(one.dim(), 0);
  EXPECT_EQ(one.item<C>(), C(1, 2));
  EXPECT_EQ(tensor({1.0, 2i}).dtype(), kComplex64);
  EXPECT_EQ(numbers(tensor({1.0, 2i})), (ComplexNumbers{1, 2i}));
  EXPECT_EQ(tensor(ComplexNumbers{1i}).dtype(), kComplex64);
  EXPECT_EQ(tensor(ComplexNumbers{1i}, kComplex128).dtype(), kComplex128);
  EXPECT_EQ(numbers(full({2}, 1.5 + 2i)), (ComplexNumbers{1.5 + 2i, 1.5 + 2i}));
  EXPECT_EQ(full({2}, 1.5 + 2i).dtype(), kComplex64);
  EXPECT_TRUE(one.is_complex());
  refuses([&] { one.item<float>(); }, ErrorCode::kType, "no real number");
  EXPECT_EQ(tensor(C(3, 0)).item<double>(), 3);
  C memory[] = {{1, 2}, {3, 4}};
  const Tensor over = from_blob(memory, {2});
  EXPECT_EQ(over.dtype(), kComplex64);
  over.fill_(1i);
  EXPECT_EQ(memory[1], C(0, 1));
  const Tensor z = points();
  EXPECT_EQ((z.accessor<Z, 1>()[3]), kPoints[3]);
}

TEST(Complex, Promotion) {
  const Tensor z = tensor({1i, 2i});
  EXPECT_EQ((z + tensor({1, 2})).dtype(), kComplex64);
  EXPECT_EQ((z + tensor({1.0, 2.0}, kFloat64)).dtype(), kComplex128);
  EXPECT_EQ((z + tensor({1.0, 2.0}, kFloat16)).dtype(), kComplex64);
  EXPECT_EQ((tensor({1, 2}) * 1i).dtype(), kComplex64);
  EXPECT_EQ((tensor({1.0, 2.0}) * 1i).dtype(), kComplex64);
  EXPECT_EQ((tensor({1.0, 2.0}, kFloat64) * 1i).dtype(), kComplex128);
  EXPECT_EQ((tensor({true, false}) * 1i).dtype(), kComplex64);
  // A 0-dim tensor promotes by its category alone.
  EXPECT_EQ((tensor({1.0, 2.0}) + tensor(1i, kComplex128)).dtype(), kComplex64);
  EXPECT_EQ((z + 2.5).dtype(), kComplex64);
  EXPECT_EQ((1i - z).dtype(), kComplex64);
  EXPECT_EQ(numbers(2i / tensor({2i, 1.0})), (ComplexNumbers{1, 2i}));
  EXPECT_EQ(abs(z).dtype(), kFloat32);
  EXPECT_EQ(abs(points()).dtype(), kFloat64);
  EXPECT_EQ(eq(z, z).dtype(), kBool);
}

TEST(Complex, ViewsShareMemory) {
  const Tensor z = points().clone();
  const Tensor parts = view_as_real(z);
  EXPECT_EQ(parts.sizes(), IntList({15, 2}));
  EXPECT_EQ(parts.dtype(), kFloat64);
  EXPECT_EQ(real(z).strides(), IntList({2}));
  imag(z).fill_(7);
  EXPECT_EQ(numbers(z)[3], Z(2, 7));
  EXPECT_EQ(parts[3][1].item<double>(), 7);
  const Tensor back = view_as_complex(parts);
  EXPECT_EQ(back.raw_data(), z.raw_data());
  const Tensor real_tensor = tensor({1.0, 2.0});
  EXPECT_TRUE(real(real_tensor).is_same(real_tensor));
  EXPECT_TRUE(conj(real_tensor).is_same(real_tensor));
  EXPECT_FALSE(is_conj(conj(z)));
  EXPECT_EQ(numbers(conj(tensor({1.0 + 2i}))), (ComplexNumbers{1.0 - 2i}));
  const Tensor matrix = reshape(points(), {5, 3});
  EXPECT_EQ(numbers(view_as_complex(view_as_real(matrix.mT()).contiguous())), numbers(matrix.mT()));
  refuses([] { view_as_complex(tensor({1.0, 2.0, 3.0})); }, ErrorCode::kShape, "of size 2");
  refuses(
      [&] {
        view_as_complex(tensor({{0.0, 1.0, 2.0}, {3.0, 4.0, 5.0}}).slice(1, 1, 3));
      },
      ErrorCode::kShape, "odd");
}

TEST(Complex, CopiesBetweenTypesAndStrides) {
  const Tensor z = reshape(points(), {5, 3});
  EXPECT_EQ(numbers(z.mT().contiguous()), numbers(z.mT().clone()));
  EXPECT_EQ(z.to(kComplex64).dtype(), kComplex64);
  EXPECT_EQ(z.to(kComplex64).to(kComplex128).to_vector<C>()[4], C(0.3F, 0));
  EXPECT_EQ(numbers(tensor({1, -2}).to(kComplex64)), (ComplexNumbers{1, -2}));
  EXPECT_EQ(numbers(tensor({true, false}).to(kComplex128)), (ComplexNumbers{1, 0}));
  refuses([&] { z.to(kFloat64); }, ErrorCode::kType, "drop the imaginary parts");
  refuses([&] { zeros({5, 3}).copy_(z); }, ErrorCode::kType, "drop the imaginary parts");
  refuses([&] { zeros({5, 3}).add_(z); }, ErrorCode::kType, "cannot be stored");
  const Tensor filled = zeros({2, 2}, kComplex64);
  filled.mT().copy_(tensor({{1.0 + 1i, 2.0}, {3.0, 4.0 - 1i}}));
  EXPECT_EQ(numbers(filled), (ComplexNumbers{1.0 + 1i, 3, 2, 4.0 - 1i}));
  filled.fill_(tensor(2.5 - 1i));
  EXPECT_EQ(numbers(filled)[3], 2.5 - 1i);
  filled.fill_(3);
  EXPECT_EQ(numbers(filled)[0], Z(3));
}

TEST(Complex, Printing) {
  EXPECT_EQ(tensor({1.0 + 2i, -1.0 - 2i}).str(),
            "tensor([ 1.+2.j, -1.-2.j], shape=(2,), dtype=complex64)");
  EXPECT_EQ(tensor(0.5 - 1i).str(), "tensor(0.5000-1.j, shape=(), dtype=complex64)");
}

struct Function {
  const char* name;
  std::function<Z(Z)> expected;
};

class ComplexFunction : public ::testing::TestWithParam<Function> {};

TEST_P(ComplexFunction, AgreesWithTheStandardLibrary) {
  const Function& f = GetParam();
  ComplexNumbers expected;
  ComplexNumbers narrow;
  for (const Z& z : kPoints) {
    expected.push_back(f.expected(z));
    narrow.push_back(f.expected(Z(C(z))));
  }
  expect_near(numbers(call(f.name, {points()})[0].tensor()), expected, 1e-13, f.name);
  expect_near(numbers(call(f.name, {points(kComplex64)})[0].tensor()), narrow, 2e-6, f.name);
}

const Function kFunctions[] = {
    {"neg", [](Z z) { return -z; }},
    {"square", [](Z z) { return z * z; }},
    {"reciprocal", [](Z z) { return 1.0 / z; }},
    {"conj", [](Z z) { return std::conj(z); }},
    {"abs", [](Z z) { return Z(std::abs(z)); }},
    {"angle", [](Z z) { return Z(std::arg(z)); }},
    {"sgn", [](Z z) { return z / std::abs(z); }},
    {"real", [](Z z) { return Z(z.real()); }},
    {"imag", [](Z z) { return Z(z.imag()); }},
    {"sqrt", [](Z z) { return std::sqrt(z); }},
    {"rsqrt", [](Z z) { return 1.0 / std::sqrt(z); }},
    {"exp", [](Z z) { return std::exp(z); }},
    {"exp2", [](Z z) { return std::exp(z * std::numbers::ln2); }},
    {"log", [](Z z) { return std::log(z); }},
    {"log2", [](Z z) { return std::log(z) / std::numbers::ln2; }},
    {"log10", [](Z z) { return std::log10(z); }},
    {"sin", [](Z z) { return std::sin(z); }},
    {"cos", [](Z z) { return std::cos(z); }},
    {"tan", [](Z z) { return std::tan(z); }},
    {"asin", [](Z z) { return std::asin(z); }},
    {"acos", [](Z z) { return std::acos(z); }},
    {"atan", [](Z z) { return std::atan(z); }},
    {"sinh", [](Z z) { return std::sinh(z); }},
    {"cosh", [](Z z) { return std::cosh(z); }},
    {"tanh", [](Z z) { return std::tanh(z); }},
    {"asinh", [](Z z) { return std::asinh(z); }},
    {"acosh", [](Z z) { return std::acosh(z); }},
    {"atanh", [](Z z) { return std::atanh(z); }},
    {"sigmoid", [](Z z) { return 1.0 / (1.0 + std::exp(-z)); }},
    {"silu", [](Z z) { return z / (1.0 + std::exp(-z)); }},
};

INSTANTIATE_TEST_SUITE_P(All, ComplexFunction, ::testing::ValuesIn(kFunctions),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(Complex, FunctionsNearZeroDoNotCancel) {
  const Tensor z = tensor(ComplexNumbers{{1e-9, 2e-9}, {-3e-12, 1e-10}}, kComplex128);
  // exp(z) - 1 = z + z^2 / 2 and log(1 + z) = z - z^2 / 2, up to z^3.
  ComplexNumbers exponentials;
  ComplexNumbers logarithms;
  for (const Z& x : numbers(z)) {
    exponentials.push_back(x + x * x / 2.0);
    logarithms.push_back(x - x * x / 2.0);
  }
  expect_near(numbers(expm1(z)), exponentials, 1e-15, "expm1");
  expect_near(numbers(log1p(z)), logarithms, 1e-15, "log1p");
}

TEST(Complex, SigmoidsNearPolesDoNotCancel) {
  // Near i pi, where x + iy = i pi + d, 1 / (1 - exp(-d)) = 1/d + 1/2 + d/12, up to d^3.
  constexpr double kRest = 1.2246467991473532e-16;  // of pi, beyond the double
  ComplexNumbers points, expected;
  for (const Z& d : {Z(1e-9, 2e-9), Z(-3e-7, 1e-8), Z(0, 1e-5), Z(2e-12, 0), Z(0, 0)}) {
    for (const double side : {1.0, -1.0}) {
      const Z at(d.real(), side * (std::numbers::pi + d.imag()));
      const Z rest(d.real(), side * ((std::abs(at.imag()) - std::numbers::pi) - kRest));
      points.push_back(at);
      expected.push_back(1.0 / rest + 0.5 + rest / 12.0);
    }
  }
  expect_near(numbers(sigmoid(tensor(points, kComplex128))), expected, 2e-15, "sigmoid");
}

TEST(Complex, Arithmetic) {
  const Tensor a = points();
  const Tensor b = flip(points(), {0});
  ComplexNumbers sums, differences, products, quotients, powers;
  const ComplexNumbers x = numbers(a);
  const ComplexNumbers y = numbers(b);
  for (size_t i = 0; i < x.size(); ++i) {
    sums.push_back(x[i] + y[i]);
    differences.push_back(x[i] - 2i * y[i]);
    products.push_back(x[i] * y[i]);
    quotients.push_back(x[i] / y[i]);
    powers.push_back(std::pow(x[i], y[i]));
  }
  expect_near(numbers(a + b), sums, 1e-15, "add");
  expect_near(numbers(sub(a, b, Scalar(2i))), differences, 1e-14, "sub");
  expect_near(numbers(a * b), products, 1e-14, "mul");
  expect_near(numbers(a / b), quotients, 1e-14, "div");
  expect_near(numbers(pow(a, b)), powers, 1e-12, "pow");
  expect_near(numbers(pow(a, 2)), numbers(a * a), 1e-14, "pow 2");
  EXPECT_EQ(numbers(pow(tensor({0i, 2i}), 0)), (ComplexNumbers{1, 1}));
  // No intermediate overflow or underflow.
  const Z huge(1e300, -1e300);
  EXPECT_LE(std::abs(numbers(tensor(ComplexNumbers{huge}, kComplex128) / huge)[0] - 1.0), 1e-15);
  EXPECT_LE(
      std::abs(abs(tensor(ComplexNumbers{huge}, kComplex128)).item<double>() / std::abs(huge) - 1),
      1e-15);
  // Division by zero, as ATen's.
  const ComplexNumbers infinite = numbers(tensor({1.0 + 1i}) / tensor({0i}));
  EXPECT_TRUE(std::isinf(infinite[0].real()) && std::isinf(infinite[0].imag()));
  const Tensor in_place = a.clone();
  in_place.mul_(1i).add_(b);
  expect_near(numbers(in_place), numbers(a * 1i + b), 1e-15, "in place");
  expect_near(numbers(addcmul(a, a, b, 1i)), numbers(a + a * b * 1i), 1e-14, "addcmul");
  expect_near(numbers(lerp(a, b, 0.25)), numbers(a + (b - a) * 0.25), 1e-14, "lerp");
}

TEST(Complex, StridedAndBroadcastOperandsOfAnySize) {
  for (const int64_t n : {1, 3, 7, 255, 256, 257, 1000, 5000}) {
    const Tensor a = randn({n, 3}, kComplex128);
    const Tensor row = randn({3}, kComplex128);
    const Tensor column = randn({n, 1}, kFloat64);
    const Tensor found = a.mT() * column.mT() + unsqueeze(row, 1);
    const Tensor by_parts = complex(real(a) * column + real(row), imag(a) * column + imag(row));
    EXPECT_TRUE(allclose(found.mT(), by_parts, 1e-14, 1e-14)) << n;
  }
}

TEST(Complex, ResultsMayBeOperandsOfSeveralSteps) {
  for (const ScalarType type : {kComplex64, kComplex128}) {
    const double tolerance = type == kComplex64 ? 1e-5 : 1e-13;
    for (const int64_t n : {1, 5, 31, 256, 300, 9000}) {
      const Tensor a = randn({n}, type);
      const Tensor b = randn({n}, type);
      const Tensor expected = a + 2i * (a * b);
      Tensor in_place = a.clone();
      addcmul_(in_place, in_place, b, 2i);
      EXPECT_TRUE(allclose(in_place, expected, tolerance, tolerance)) << n;
      const Tensor scaled = a.clone();
      scaled.mul_(scaled);
      EXPECT_TRUE(allclose(scaled, a * a, tolerance, tolerance)) << n;
    }
  }
}

TEST(Complex, ExponentialsOfSpecialValuesAreTheStandardLibrarys) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> parts = {0,    -0.0, 1,   -1,   0.5, 79,   85,  -95, 120,         -120,
                                     -750, 705,  720, 1e10, inf, -inf, 1e3, -4,  std::nan("")};
  ComplexNumbers points;
  for (const double re : parts) {
    for (const double im : parts) points.push_back({re, im});
  }
  const auto agrees = [](double found, double expected, double tolerance) {
    if (std::isnan(expected)) return std::isnan(found);
    if (expected == 0 || std::isinf(expected)) return found == expected;
    return std::abs(found - expected) <= tolerance * std::abs(expected);
  };
  const ComplexNumbers wide = numbers(exp(tensor(points, kComplex128)));
  const ComplexNumbers narrow = numbers(exp(tensor(points, kComplex64)));
  for (size_t i = 0; i < points.size(); ++i) {
    const Z z = std::exp(points[i]);
    const C c = std::exp(C(points[i]));
    EXPECT_TRUE(agrees(wide[i].real(), z.real(), 1e-14) && agrees(wide[i].imag(), z.imag(), 1e-14))
        << points[i] << ": " << wide[i] << ", expected " << z;
    EXPECT_TRUE(agrees(narrow[i].real(), c.real(), 1e-6) &&
                agrees(narrow[i].imag(), c.imag(), 1e-6))
        << points[i] << ": " << narrow[i] << ", expected " << c;
  }
}

TEST(Complex, SumsOfRowsOfAnyLength) {
  for (const int64_t n : {1, 2, 3, 15, 16, 17, 127, 1023, 1024, 1025, 5000, 70001}) {
    const Tensor x = randn({3, n}, kComplex64);
    const ComplexNumbers all = numbers(x);
    ComplexNumbers sums(3);
    for (int64_t i = 0; i < 3 * n; ++i)
      sums[static_cast<size_t>(i / n)] += all[static_cast<size_t>(i)];
    const double error = 2e-6 * std::sqrt(static_cast<double>(n));
    const ComplexNumbers found = numbers(x.sum({1}));
    for (size_t r = 0; r < 3; ++r) EXPECT_LE(std::abs(found[r] - sums[r]), error) << n;
    EXPECT_LE(std::abs(x.sum().item<Z>() - sums[0] - sums[1] - sums[2]), 3 * error) << n;
    // Rows that begin at odd places.
    const ComplexNumbers tails = numbers(narrow(x, 1, n / 3, n - n / 3).sum({1}));
    for (size_t r = 0; r < 3; ++r) {
      Z sum = 0;
      for (int64_t i = n / 3; i < n; ++i) {
        sum += all[r * static_cast<size_t>(n) + static_cast<size_t>(i)];
      }
      EXPECT_LE(std::abs(tails[r] - sum), error) << n;
    }
  }
}

TEST(Complex, SpecialValues) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const Tensor z =
      tensor(ComplexNumbers{{inf, nan}, {nan, -inf}, {nan, 1}, {1, inf}, {1, 2}}, kComplex128);
  using Bools = std::vector<bool>;
  EXPECT_EQ(isinf(z).to_vector<bool>(), (Bools{true, true, false, true, false}));
  EXPECT_EQ(isnan(z).to_vector<bool>(), (Bools{true, true, true, false, false}));
  EXPECT_EQ(isfinite(z).to_vector<bool>(), (Bools{false, false, false, false, true}));
  const std::vector<double> sizes = abs(z).to_vector<double>();
  EXPECT_EQ(sizes[0], inf);
  EXPECT_EQ(sizes[1], inf);
  EXPECT_TRUE(std::isnan(sizes[2]));
  EXPECT_EQ(isreal(tensor({1.0, 2i})).to_vector<bool>(), (Bools{true, false}));
  EXPECT_EQ(numbers(sgn(tensor({0i, 3i}))), (ComplexNumbers{0, 1i}));
  EXPECT_EQ(logical_not(tensor({0i, 3i})).to_vector<bool>(), (Bools{true, false}));
}

TEST(Complex, Reductions) {
  const Tensor z = reshape(points(), {5, 3});
  Z sum = 0;
  Z product = 1;
  double squares = 0;
  for (const Z& x : kPoints) {
    sum += x;
    product *= x;
    squares += std::norm(x);
  }
  const double n = static_cast<double>(kPoints.size());
  expect_near({z.sum().item<Z>()}, {sum}, 1e-14, "sum");
  expect_near({z.mean().item<Z>()}, {sum / n}, 1e-14, "mean");
  expect_near({prod(z).item<Z>()}, {product}, 1e-13, "prod");
  expect_near(numbers(prod(z, 1)), numbers(z.select(1, 0) * z.select(1, 1) * z.select(1, 2)), 1e-13,
              "prod");
  EXPECT_NEAR(linalg_vector_norm(z).item<double>(), std::sqrt(squares), 1e-13);
  EXPECT_NEAR(var(z).item<double>(), (squares - std::norm(sum) / n) / (n - 1), 1e-12);
  EXPECT_NEAR(mytorch::std(z).item<double>(), std::sqrt(var(z).item<double>()), 1e-13);
  EXPECT_EQ(var(z).dtype(), kFloat64);
  EXPECT_EQ(numbers(z.sum({0}, true)).size(), 3U);
  EXPECT_FALSE(all(tensor({1i, 0i})).item<bool>());
  EXPECT_TRUE(any(tensor({1i, 0i})).item<bool>());
  expect_near({numbers(cumsum(points(), 0)).back()}, {sum}, 1e-14, "cumsum");
  expect_near({numbers(cumprod(points(), 0)).back()}, {product}, 1e-12, "cumprod");
  EXPECT_EQ(zeros({0, 3}, kComplex64).sum().item<Z>(), Z(0));
  EXPECT_EQ(prod(zeros({0}, kComplex64)).item<Z>(), Z(1));
}

TEST(Complex, Products) {
  const Tensor a = randn({3, 4}, kComplex128);
  const Tensor b = randn({4, 5}, kComplex128);
  const ComplexNumbers x = numbers(a);
  const ComplexNumbers y = numbers(b);
  ComplexNumbers expected;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 5; ++j) {
      Z sum = 0;
      for (int k = 0; k < 4; ++k) sum += x[i * 4 + k] * y[k * 5 + j];
      expected.push_back(sum);
    }
  }
  const auto close = [&](const Tensor& found, const Tensor& wanted, const char* what) {
    EXPECT_TRUE(allclose(found, wanted, 1e-12, 1e-12)) << what;
  };
  const Tensor product = reshape(tensor(expected, kComplex128), {3, 5});
  close(mm(a, b), product, "mm");
  close(matmul(a, b), product, "matmul");
  close(mm(a, b.mT().contiguous().mT()), product, "mm of a transposed view");
  close(addmm(product, a, b, 2, Scalar(1i)), product * 2 + product * 1i, "addmm");
  close(bmm(unsqueeze(a, 0), unsqueeze(b, 0))[0], product, "bmm");
  close(einsum("ij,jk->ik", {a, b}), product, "einsum");
  close(tensordot(a, b, {1}, {0}), product, "tensordot");
  const Tensor u = a[0];
  const Tensor v = b.select(1, 0);
  close(dot(u, v), (u * v).sum(), "dot");
  close(vdot(u, v), (conj(u) * v).sum(), "vdot");
  close(outer(u, v), unsqueeze(u, 1) * v, "outer");
  close(inner(u, v), dot(u, v), "inner");
  close(linalg_vecdot(u, v), vdot(u, v), "linalg_vecdot");
}

TEST(Complex, Indexing) {
  const Tensor z = reshape(points(), {5, 3});
  const ComplexNumbers x = numbers(z);
  EXPECT_EQ(numbers(z[1]), (ComplexNumbers{x[3], x[4], x[5]}));
  EXPECT_EQ(numbers(index_select(z, 0, tensor({4, 0})))[0], x[12]);
  EXPECT_EQ(numbers(gather(z, 1, tensor({{2}, {0}})))[0], x[2]);
  EXPECT_EQ(numbers(scatter(z, 1, tensor({{2}}), tensor({{7i}}, kComplex128)))[2], 7i);
  EXPECT_EQ(numbers(scatter_add(z, 1, tensor({{0}}), tensor({{7i}}, kComplex128)))[0], x[0] + 7i);
  EXPECT_EQ(numbers(cat({z, z.to(kComplex64)}, 1)).size(), 30U);
  EXPECT_EQ(cat({z, ones({5, 1})}, 1).dtype(), kComplex128);
  const Tensor out = zeros({1}, kComplex128);
  refuses([&] { cat_out(out, std::vector<Tensor>(), 0); }, ErrorCode::kValue, "is empty");
  EXPECT_EQ(numbers(stack({z, z}))[15], x[0]);
  EXPECT_EQ(numbers(where(tensor({true, false}), tensor({1i, 2i}), 0)), (ComplexNumbers{1i, 0}));
  EXPECT_EQ(numbers(masked_fill(tensor({1i, 2i}), tensor({true, false}), 3i)),
            (ComplexNumbers{3i, 2i}));
  EXPECT_EQ(numbers(flip(z, {0, 1}))[0], x[14]);
  EXPECT_EQ(numbers(z[real(z) > 0]).size(), 8U);
  EXPECT_EQ(nonzero(tensor({0i, 2i})).item<int64_t>(), 1);
  const Tensor changed = z.clone();
  changed.index({0}) = 5i;
  EXPECT_EQ(numbers(changed)[2], 5i);
  EXPECT_TRUE(equal(z, z.clone()));
  EXPECT_TRUE(allclose(z, z + 1e-9i));
  EXPECT_FALSE(allclose(z, z + 1e-3i));
}

TEST(Complex, RandomPartsHaveHalfTheVariance) {
  const Tensor z = randn({20000}, kComplex64, kCPU, Generator(3));
  EXPECT_NEAR(var(real(z)).item<double>(), 0.5, 0.02);
  EXPECT_NEAR(var(imag(z)).item<double>(), 0.5, 0.02);
  const Tensor u = rand({1000}, kComplex64, kCPU, Generator(3));
  EXPECT_TRUE(all(imag(u) >= 0).item<bool>());
  EXPECT_GT(imag(u).max().item<float>(), 0.9F);
}

TEST(Complex, OperatorsThatOrderNumbersRefuseThem) {
  const Tensor z = tensor({1i, 2i});
  for (const char* name : {"floor", "ceil", "relu", "sign", "erf", "max", "amin", "argmax", "sort",
                           "cummax", "median", "softmax", "isposinf", "signbit"}) {
    std::vector<Value> args = {z};
    if (std::string(name) == "cummax") args.emplace_back(0);
    if (std::string(name) == "softmax") args.emplace_back(0);
    EXPECT_THROW(call(name, args), Error) << name;
  }
  refuses([&] { (void)(z < 1); }, ErrorCode::kType, "takes no complex numbers");
  refuses([&] { maximum(z, z); }, ErrorCode::kType, "takes no complex numbers");
  refuses([&] { (void)(tensor({1.0}) < 1i); }, ErrorCode::kType, "takes no complex numbers");
  refuses([&] { add(tensor({1.0}), 1.0, Scalar(1i)); }, ErrorCode::kType, "complex number");
}

}  // namespace
}  // namespace mytorch
