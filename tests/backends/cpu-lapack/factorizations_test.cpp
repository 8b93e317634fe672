// Factorizations through the library: the equations that they satisfy where results are not
// unique, sizes at which LAPACK works in blocks and on several threads, and matrices that have no
// factorization. Conformance tests compare the kernels with the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "mytorch/autograd/gradcheck.h"
#include "mytorch/backends.h"
#include "mytorch/error.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops.h"
#include "mytorch/tensor.h"
#include "mytorch/threads.h"

namespace mytorch {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor random_matrices(IntList sizes, ScalarType dtype = kFloat64, uint64_t seed = 1) {
  return randn(sizes, dtype, kCPU, Generator(seed));
}
Tensor turned(const Tensor& x) { return mH(x); }
Tensor symmetric(const Tensor& x) { return (x + turned(x)) * 0.5; }
Tensor definite(const Tensor& x) {
  return matmul(x, turned(x)) + eye(x.size(-2), x.dtype(), x.device());
}
double largest_magnitude(const Tensor& x) {
  return x.numel() == 0 ? 0 : amax(abs(x)).item<double>();
}
double distance(const Tensor& a, const Tensor& b) { return largest_magnitude(a - b); }
double from_orthonormal(const Tensor& q) {
  return distance(matmul(turned(q), q),
                  eye(q.size(-1), q.dtype()).expand(matmul(turned(q), q).sizes()));
}
std::string failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Shape {
  const char* name;
  std::vector<int64_t> sizes;
  ScalarType dtype = kFloat64;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.name; }

// Sizes on both sides of LAPACK's blocks, and of the choice between threads of a batch and threads
// of a matrix.
class Factorizations : public testing::TestWithParam<Shape> {
 protected:
  Prefer pin_{"cpu", "cpu-lapack"};
};

INSTANTIATE_TEST_SUITE_P(
    Shapes, Factorizations,
    testing::Values(Shape{"one", {1, 1}}, Shape{"square", {5, 5}}, Shape{"tall", {7, 3}},
                    Shape{"wide", {3, 7}}, Shape{"batch", {40, 6, 6}},
                    Shape{"tall_batch", {2, 3, 20, 9}}, Shape{"blocked", {130, 130}},
                    Shape{"threaded", {300, 260}}, Shape{"empty", {0, 0}},
                    Shape{"no_columns", {2, 4, 0}}, Shape{"no_batch", {0, 3, 3}},
                    Shape{"complex", {5, 5}, kComplex128},
                    Shape{"complex_tall", {7, 3}, kComplex128},
                    Shape{"complex_wide", {3, 7}, kComplex128},
                    Shape{"complex_batch", {2, 3, 6, 6}, kComplex128},
                    Shape{"complex_blocked", {130, 130}, kComplex128},
                    Shape{"complex_threaded", {300, 260}, kComplex128},
                    Shape{"complex_empty", {0, 0}, kComplex128}),
    [](const auto& info) { return info.param.name; });

TEST_P(Factorizations, QRIsOrthonormalTimesTriangular) {
  const Tensor a = random_matrices(GetParam().sizes, GetParam().dtype);
  for (const char* mode : {"reduced", "complete"}) {
    const auto [q, r] = linalg_qr(a, mode);
    EXPECT_LE(distance(matmul(q, r), a), 1e-12) << mode;
    EXPECT_LE(from_orthonormal(q), 1e-12) << mode;
    EXPECT_EQ(distance(triu(r), r), 0) << mode;
  }
  EXPECT_LE(distance(std::get<1>(linalg_qr(a, "r")), std::get<1>(linalg_qr(a, "reduced"))), 1e-12);
}

TEST_P(Factorizations, SVDIsOrthonormalAndDescending) {
  const Tensor a = random_matrices(GetParam().sizes, GetParam().dtype);
  for (const bool full : {false, true}) {
    const auto [u, s, vh] = linalg_svd(a, full);
    const int64_t k = s.size(-1);
    const Tensor product = matmul(narrow(u, -1, 0, k) * unsqueeze(s, -2), narrow(vh, -2, 0, k));
    EXPECT_LE(distance(product, a), 1e-11) << full;
    EXPECT_LE(from_orthonormal(u), 1e-12) << full;
    EXPECT_LE(from_orthonormal(turned(vh)), 1e-12) << full;
    if (k > 1) {
      const Tensor gaps = narrow(s, -1, 0, k - 1) - narrow(s, -1, 1, k - 1);
      EXPECT_FALSE(any(lt(gaps, 0)).item<bool>());
    }
    EXPECT_LE(distance(linalg_svdvals(a), s), 1e-11);
  }
}

TEST_P(Factorizations, LUIsPermutedLowerTimesUpper) {
  const Tensor a = random_matrices(GetParam().sizes, GetParam().dtype);
  const auto [p, l, u] = linalg_lu(a);
  EXPECT_LE(distance(matmul(matmul(p, l), u), a), 1e-12);
  EXPECT_LE(from_orthonormal(p), 0);
  // Pivots of complex matrices are chosen by the sum of the magnitudes of both parts.
  EXPECT_LE(largest_magnitude(l), a.is_complex() ? std::sqrt(2.0) : 1.0);
}

TEST_P(Factorizations, SolversSolve) {
  const std::vector<int64_t> sizes = GetParam().sizes;
  const Tensor x = random_matrices(sizes, GetParam().dtype);
  const Tensor a = definite(x);  // (..., m, m)
  const Tensor b = random_matrices(sizes, GetParam().dtype, 2);
  EXPECT_LE(distance(matmul(a, linalg_solve(a, b)), b), 1e-9);
  EXPECT_LE(distance(matmul(linalg_solve(a, turned(b), false), a), turned(b)), 1e-9);
  const Tensor factor = linalg_cholesky(a);
  EXPECT_LE(distance(matmul(factor, turned(factor)), a), 1e-10);
  EXPECT_LE(distance(linalg_cholesky(a, true), turned(factor)), 1e-10);
  EXPECT_LE(distance(matmul(a, cholesky_solve(b, factor)), b), 1e-9);
  const auto [values, vectors] = linalg_eigh(a);
  EXPECT_LE(distance(matmul(a, vectors), vectors * unsqueeze(values, -2)), 1e-9);
  EXPECT_LE(from_orthonormal(vectors), 1e-12);
  EXPECT_LE(distance(linalg_eigvalsh(a), values), 1e-9);
  const Tensor root = linalg_matrix_sqrth(a);
  EXPECT_LE(distance(matmul(root, root), a), 1e-9);
}

// A square matrix of the type and batch, of as many rows.
Tensor square_of(const Shape& shape, uint64_t seed = 1) {
  std::vector<int64_t> sizes = shape.sizes;
  sizes.back() = sizes[sizes.size() - 2];
  return random_matrices(sizes, shape.dtype, seed);
}

TEST_P(Factorizations, GeneralEigenvectorsAreScaledByTheirEigenvalues) {
  const Tensor a = square_of(GetParam());
  const auto [values, vectors] = linalg_eig(a);
  EXPECT_TRUE(values.is_complex());
  EXPECT_LE(distance(matmul(a.to(values.dtype()), vectors), vectors * unsqueeze(values, -2)),
            1e-10);
  const Tensor norms = linalg_vector_norm(vectors, 2, -2);
  EXPECT_LE(distance(norms, ones_like(norms)), 1e-13);
  EXPECT_LE(distance(linalg_eigvals(a), values), 1e-10);
  EXPECT_LE(distance(prod(values, -1), linalg_det(a.to(values.dtype()))),
            1e-10 * std::max(1.0, largest_magnitude(prod(values, -1))));
  const int64_t n = values.size(-1);
  if (n > 1) {
    const Tensor real_parts = real(values);
    const Tensor gaps = narrow(real_parts, -1, 1, n - 1) - narrow(real_parts, -1, 0, n - 1);
    EXPECT_FALSE(any(lt(gaps, -1e-12)).item<bool>());
  }
}

TEST_P(Factorizations, IndefiniteMatricesAreSolved) {
  const Tensor x = square_of(GetParam());
  const Tensor b = random_matrices(GetParam().sizes, GetParam().dtype, 2);
  for (const bool hermitian : {false, true}) {
    const Tensor a = hermitian ? symmetric(x) : (x + mT(x)) * 0.5;
    const auto [factors, pivots] = linalg_ldl_factor(tril(a) + triu(ones_like(a), 1), hermitian);
    EXPECT_EQ(distance(tril(factors), factors), 0);
    EXPECT_LE(distance(matmul(a, linalg_ldl_solve(factors, pivots, b, hermitian)), b), 1e-10)
        << hermitian;
  }
}

TEST_P(Factorizations, LargestSingularValuesApproximate) {
  const Tensor a = random_matrices(GetParam().sizes, GetParam().dtype);
  const auto [u, s, vh] = linalg_svd(a, false);
  const int64_t k = std::min<int64_t>(2, s.size(-1));
  const Tensor near =
      matmul(narrow(u, -1, 0, k) * unsqueeze(narrow(s, -1, 0, k), -2), narrow(vh, -2, 0, k));
  const auto [lu, ls, lv] = svd_lowrank(near, 3, 2, {}, Generator(3));
  EXPECT_LE(distance(matmul(lu * unsqueeze(ls, -2), turned(lv)), near), 1e-11);
  EXPECT_LE(distance(narrow(ls, -1, 0, k), narrow(s, -1, 0, k)), 1e-11);
  EXPECT_LE(distance(narrow(lu, -1, 0, k), narrow(u, -1, 0, k)), 1e-9);
}

TEST_P(Factorizations, StridesDoNotMatter) {
  const Tensor a = random_matrices(GetParam().sizes, GetParam().dtype);
  const Tensor other = turned(turned(a).contiguous());
  Tensor spread = zeros({a.numel() * 2}, a.dtype());
  std::vector<int64_t> strides(a.strides().begin(), a.strides().end());
  for (int64_t& stride : strides) stride *= 2;
  spread = as_strided(spread, a.sizes(), strides);
  spread.copy_(a);
  for (const Tensor& same : {other, spread}) {
    EXPECT_EQ(distance(std::get<1>(linalg_svd(same, false)), std::get<1>(linalg_svd(a, false))), 0);
    EXPECT_EQ(distance(std::get<0>(linalg_qr(same)), std::get<0>(linalg_qr(a))), 0);
    EXPECT_EQ(distance(std::get<2>(linalg_lu(same)), std::get<2>(linalg_lu(a))), 0);
  }
}

// ---- signs, errors, NaN
// -----------------------------------------------------------------------------

class FactorizationsOf : public testing::TestWithParam<const char*> {
 protected:
  Prefer pin_{"cpu", GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Backends, FactorizationsOf, testing::Values("cpu-lapack", "reference"),
                         [](const auto& info) {
                           return std::string(info.param) == "reference" ? "reference" : "lapack";
                         });

TEST_P(FactorizationsOf, FirstLargeElementOfAVectorIsPositive) {
  const Tensor a = symmetric(random_matrices({20, 4, 4}));
  for (const Tensor& vectors :
       {std::get<1>(linalg_eigh(a)), std::get<0>(linalg_svd(random_matrices({20, 4, 4})))}) {
    const Tensor size = amax(abs(vectors), {-2}, true);
    const Tensor large = ge(abs(vectors), size * 0.9).to(kFloat64);
    const Tensor first = large * (cumsum(large, -2) == 1).to(kFloat64);
    EXPECT_TRUE(all(sum(first * vectors, {-2}) > 0).item<bool>());
  }
}

TEST_P(FactorizationsOf, FirstLargeElementOfAComplexVectorIsPositive) {
  const Tensor a = random_matrices({20, 4, 4}, kComplex128);
  for (const Tensor& vectors : {std::get<1>(linalg_eigh(symmetric(a))), std::get<0>(linalg_svd(a)),
                                std::get<1>(linalg_eig(a)), std::get<0>(svd_lowrank(a, 4))}) {
    const Tensor size = abs(vectors);
    const Tensor large = ge(size, amax(size, {-2}, true) * 0.9).to(kFloat64);
    const Tensor first = large * (cumsum(large, -2) == 1).to(kFloat64);
    const Tensor element = sum(first * vectors, {-2});
    EXPECT_TRUE(all(real(element) > 0).item<bool>());
    EXPECT_LE(largest_magnitude(imag(element)), 1e-14);
  }
}

TEST_P(FactorizationsOf, ConjugatePairsAreInOrder) {
  // The eigenvalues are +-i and +-2i: their real parts are 0 but for rounding.
  const Tensor x = random_matrices({4, 4});
  const Tensor skew =
      tensor({0.0, 1.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, -2.0, 0.0})
          .to(kFloat64)
          .view({4, 4});
  const Tensor q = std::get<0>(linalg_qr(x));
  const Tensor values = linalg_eigvals(matmul(matmul(q, skew), turned(q)));
  EXPECT_LE(distance(imag(values), tensor({-2.0, -1.0, 1.0, 2.0}).to(kFloat64)), 1e-13);
}

TEST_P(FactorizationsOf, InfoTellsWhatFailed) {
  const Tensor a = tensor({4.0, 2.0, 2.0, 3.0, 1.0, 2.0, 2.0, 1.0}).to(kFloat64).view({2, 2, 2});
  const auto [factor, info] = linalg_cholesky_ex(a);
  EXPECT_EQ(info.select(0, 0).item<int>(), 0);
  EXPECT_EQ(info.select(0, 1).item<int>(), 2);
  EXPECT_FALSE(any(isnan(factor.select(0, 0))).item<bool>());
  EXPECT_TRUE(all(isnan(factor.select(0, 1))).item<bool>());
  const Tensor singular = zeros({3, 3}, kFloat64);
  EXPECT_EQ(std::get<2>(linalg_lu_factor_ex(singular)).item<int>(), 1);
  EXPECT_EQ(linalg_det(singular).item<double>(), 0);
  EXPECT_EQ(std::get<1>(linalg_slogdet(singular)).item<double>(),
            -std::numeric_limits<double>::infinity());
}

TEST_P(FactorizationsOf, NaNEndsAndIsSeen) {
  for (const int64_t n : {2, 40, 150}) {
    Tensor a = definite(random_matrices({n, n}));
    a.select(0, n - 1).select(0, n / 2).fill_(kNan);
    for (const double value : {kNan, std::numeric_limits<double>::infinity()}) {
      a.select(0, n - 1).select(0, n / 2).fill_(value);
      EXPECT_NE(failure([&] { linalg_eigh(a); }).find("non-finite"), std::string::npos) << n;
      EXPECT_NE(failure([&] { linalg_eigvalsh(a); }).find("non-finite"), std::string::npos) << n;
      EXPECT_NE(failure([&] { linalg_svd(a); }).find("non-finite"), std::string::npos) << n;
      EXPECT_NE(failure([&] { linalg_eig(a); }).find("non-finite"), std::string::npos) << n;
      EXPECT_TRUE(all(isnan(diagonal(std::get<0>(linalg_ldl_factor_ex(a))))).item<bool>()) << n;
      EXPECT_TRUE(any(isnan(std::get<1>(linalg_qr(a)))).item<bool>()) << n;
      EXPECT_FALSE(all(isfinite(std::get<0>(linalg_lu_factor_ex(a)))).item<bool>()) << n;
    }
    a.select(0, n - 1).select(0, n / 2).fill_(kNan);
    EXPECT_NE(std::get<1>(linalg_cholesky_ex(a)).item<int>(), 0) << n;
    EXPECT_NE(failure([&] { linalg_cholesky(a); }).find("not positive-definite"),
              std::string::npos);
  }
}

TEST_P(FactorizationsOf, ErrorsNameTheElementOfTheBatch) {
  const Tensor a = eye(2, kFloat64).expand({3, 2, 2}).clone();
  a.select(0, 2).fill_(1);
  EXPECT_NE(failure([&] { linalg_inv(a); }).find("[linalg_inv] (batch element 2)"),
            std::string::npos);
  EXPECT_NE(failure([&] {
              linalg_cholesky_ex(a * -1.0, false, true);
            }).find("[linalg_cholesky_ex] (batch element 0)"),
            std::string::npos);
}

// ---- gradients through what is unique
// ---------------------------------------------------------------

TEST_P(FactorizationsOf, GradientsOfInvariantsAreThoseOfDifferences) {
  const auto check = [](const char* what, const Tensor& at, auto function) {
    const auto result = autograd::gradcheck(
        [&](const std::vector<Tensor>& inputs) { return std::vector<Tensor>{function(inputs[0])}; },
        {at.clone().requires_grad_()});
    EXPECT_TRUE(static_cast<bool>(result)) << what << ": " << result.message;
  };
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3, 3}, {4, 2}, {2, 4}, {2, 4, 3}, {2, 2, 3}}) {
    const Tensor a = random_matrices(sizes, kFloat64, 5);
    check("the projection on the columns by QR", a, [](const Tensor& x) {
      const auto [q, r] = linalg_qr(x);
      return cat({flatten(matmul(q, turned(q))), flatten(matmul(turned(r), r))});
    });
    check("the polar factor by SVD", a, [](const Tensor& x) {
      const auto [u, s, vh] = linalg_svd(x, false);
      return matmul(u, vh) + matmul(u * unsqueeze(s * s, -2), vh);
    });
    check("singular values", a, [](const Tensor& x) { return linalg_svdvals(x); });
  }
  for (const ScalarType dtype : {kFloat64, kComplex128}) {
    check("the exponential by eigenvectors of a general matrix", random_matrices({2, 3, 3}, dtype),
          [](const Tensor& x) {
            const auto [values, vectors] = linalg_eig(x);
            return linalg_solve(mT(vectors), mT(vectors * unsqueeze(exp(values), -2)));
          });
    check("eigenvalues of a general matrix", random_matrices({2, 3, 3}, dtype),
          [](const Tensor& x) { return linalg_eigvals(x); });
  }
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3, 3}, {4, 2}, {2, 4}, {2, 4, 3}}) {
    const Tensor a = random_matrices(sizes, kComplex128, 5);
    check("the projection on complex columns by QR", a, [](const Tensor& x) {
      const auto [q, r] = linalg_qr(x);
      return cat({flatten(matmul(q, turned(q))), flatten(matmul(turned(r), r))});
    });
    check("the complex polar factor by SVD", a, [](const Tensor& x) {
      const auto [u, s, vh] = linalg_svd(x, false);
      return matmul(u, vh) + matmul(u * unsqueeze(s * s, -2), vh);
    });
  }
  check("the complex square root by eigenvectors", random_matrices({2, 3, 3}, kComplex128),
        [](const Tensor& x) {
          const auto [values, vectors] = linalg_eigh(definite(x));
          return matmul(vectors * unsqueeze(sqrt(values), -2), turned(vectors));
        });
  check("the square root by eigenvectors", random_matrices({2, 3, 3}), [](const Tensor& x) {
    const auto [values, vectors] = linalg_eigh(definite(x));
    return matmul(vectors * unsqueeze(sqrt(values), -2), turned(vectors));
  });
  check("the determinant of a singular matrix",
        tensor({1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 1.0, 0.0, 1.0}).to(kFloat64).view({3, 3}),
        [](const Tensor& x) { return linalg_det(x); });
}

// ---- threads
// ----------------------------------------------------------------------------------------

// Sizes on both sides of the one up to which the kernel has an algorithm of its own.
class Eigenvectors : public testing::TestWithParam<Shape> {
 protected:
  Prefer pin_{"cpu", "cpu-lapack"};
};

INSTANTIATE_TEST_SUITE_P(Shapes, Eigenvectors,
                         testing::Values(Shape{"small", {13, 13}}, Shape{"last_small", {48, 48}},
                                         Shape{"first_large", {49, 49}},
                                         Shape{"small_float", {31, 31}, kFloat32},
                                         Shape{"small_complex", {31, 31}, kComplex128},
                                         Shape{"large_complex", {33, 33}, kComplex128},
                                         Shape{"small_complex_float", {47, 47}, kComplex64}),
                         [](const auto& info) { return info.param.name; });

// The residual and the vectors' products, relative to the rounding error of the type.
void check_eigenvectors(const Tensor& a, const char* what) {
  const ScalarType wide = a.is_complex() ? kComplex128 : kFloat64;
  const double unit = to_real(a.dtype()) == kFloat32 ? 0x1p-24 : 0x1p-53;
  const double size = std::max(largest_magnitude(a), std::numeric_limits<double>::min());
  for (const char* triangle : {"L", "U"}) {
    const auto [values, vectors] = linalg_eigh(a, triangle);
    const Tensor x = a.to(wide) / size, v = vectors.to(wide), w = values.to(kFloat64) / size;
    const double most = 100 * unit * static_cast<double>(a.size(-1));
    EXPECT_LE(distance(matmul(x, v), v * unsqueeze(w, -2)), most) << what << triangle;
    EXPECT_LE(from_orthonormal(v), most) << what << triangle;
    EXPECT_FALSE(any(lt(diff(values), 0)).item<bool>()) << what << triangle;
  }
}

TEST_P(Eigenvectors, SatisfyTheirEquationAtEveryScale) {
  const auto& [name, sizes, dtype] = GetParam();
  const Tensor a = symmetric(random_matrices(sizes, dtype));
  const double far = to_real(dtype) == kFloat32 ? 1e36 : 1e300;
  check_eigenvectors(a, "ordinary ");
  check_eigenvectors(a * far, "large ");
  check_eigenvectors(a / far, "small ");
}

TEST_P(Eigenvectors, OfMatricesThatSplit) {
  const auto& [name, sizes, dtype] = GetParam();
  const int64_t n = sizes[0];
  const Tensor a = symmetric(random_matrices(sizes, dtype));
  check_eigenvectors(zeros(sizes, dtype), "zero ");
  check_eigenvectors(eye(n, dtype), "identity ");
  Tensor blocks = a.clone();
  blocks.narrow(0, 0, 5).narrow(1, 5, n - 5).zero_();
  blocks.narrow(1, 0, 5).narrow(0, 5, n - 5).zero_();
  check_eigenvectors(blocks, "blocks ");
  const Tensor grades = pow(10.0, arange(n, to_real(dtype)) * (-20.0 / static_cast<double>(n)));
  check_eigenvectors(a * grades * unsqueeze(grades, 1), "graded ");
  const Tensor reversed = flip(grades, {0});
  check_eigenvectors(a * reversed * unsqueeze(reversed, 1), "graded up ");
}

TEST(LapackThreads, ConcurrentCallersGetTheirOwnResults) {
  const Prefer pin("cpu", "cpu-lapack");
  const Tensor large = definite(random_matrices({300, 300})), small = random_matrices({64, 20, 20});
  const Tensor expected = linalg_cholesky(large), values = linalg_svdvals(small);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Prefer own("cpu", "cpu-lapack");
      for (int i = 0; i < 10; ++i) {
        const bool same = t % 2 == 0 ? distance(linalg_cholesky(large), expected) < 1e-9
                                     : distance(linalg_svdvals(small), values) < 1e-9;
        if (!same) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace mytorch
