// Factorizations on the GPU: the equations that they satisfy, at sizes on both sides of the choice
// between our kernels, batched routines and those for one matrix. Conformance tests compare small
// ones with the reference.
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "mytorch/device_memory.h"
#include "mytorch/error.h"
#include "mytorch/ops.h"
#include "mytorch/tensor.h"
#include "tests/backends/cuda/gpu.h"

namespace mytorch::testing {
namespace {

Tensor random_matrices(IntList sizes, ScalarType dtype, uint64_t seed = 1) {
  return randn(sizes, dtype, kCPU, Generator(seed)).to(kCUDA);
}
Tensor turned(const Tensor& x) { return transpose(x, -2, -1); }
Tensor definite(const Tensor& x) {
  return matmul(x, turned(x)) + eye(x.size(-2), x.dtype(), x.device());
}
double largest_magnitude(const Tensor& x) {
  return x.numel() == 0 ? 0 : amax(abs(x)).item<double>();
}
double largest_difference(const Tensor& a, const Tensor& b) { return largest_magnitude(a - b); }
double from_orthonormal(const Tensor& q) {
  const Tensor product = matmul(turned(q), q);
  return largest_difference(product,
                            eye(q.size(-1), q.dtype(), q.device()).expand(product.sizes()));
}

struct Shape {
  const char* name;
  std::vector<int64_t> sizes;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.name; }

class Factorizations : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      GTEST_SKIP() << "there is no GPU here";
    }
  }
  const ScalarType types_[2] = {kFloat32, kFloat64};
  // The rounding of a type for matrices of this size.
  double bound(ScalarType type) const { return (type == kFloat32 ? 0x1p-23 : 0x1p-52) * 4000; }
};

INSTANTIATE_TEST_SUITE_P(Shapes, Factorizations,
                         ::testing::Values(Shape{"small", {3, 20, 20}}, Shape{"tall", {2, 70, 30}},
                                           Shape{"batch", {5, 150, 150}},
                                           Shape{"tall_batch", {3, 200, 90}},
                                           Shape{"wide_batch", {3, 90, 200}},
                                           Shape{"one", {300, 300}}, Shape{"wide", {260, 300}}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Factorizations, QRIsOrthonormalTimesTriangular) {
  for (const ScalarType type : types_) {
    const Tensor a = random_matrices(GetParam().sizes, type);
    for (const char* mode : {"reduced", "complete"}) {
      const auto [q, r] = linalg_qr(a, mode);
      EXPECT_LE(largest_difference(matmul(q, r), a), bound(type)) << mode;
      EXPECT_LE(from_orthonormal(q), bound(type)) << mode;
      EXPECT_EQ(largest_difference(triu(r), r), 0) << mode;
    }
  }
}

TEST_P(Factorizations, SVDIsOrthonormalAndDescending) {
  for (const ScalarType type : types_) {
    const Tensor a = random_matrices(GetParam().sizes, type);
    for (const bool full : {false, true}) {
      const auto [u, s, vh] = linalg_svd(a, full);
      const int64_t k = s.size(-1);
      const Tensor product = matmul(narrow(u, -1, 0, k) * unsqueeze(s, -2), narrow(vh, -2, 0, k));
      EXPECT_LE(largest_difference(product, a), 4 * bound(type)) << full;
      EXPECT_LE(from_orthonormal(u), bound(type)) << full;
      EXPECT_LE(from_orthonormal(turned(vh)), bound(type)) << full;
      const Tensor gaps = narrow(s, -1, 0, k - 1) - narrow(s, -1, 1, k - 1);
      EXPECT_FALSE(any(lt(gaps, 0)).item<bool>());
      EXPECT_LE(largest_difference(linalg_svdvals(a), s), 4 * bound(type));
    }
  }
}

TEST_P(Factorizations, SVDOfSingularMatrices) {
  for (const ScalarType type : types_) {
    const Tensor x = random_matrices(GetParam().sizes, type);
    const Tensor few = narrow(x, -1, 0, 9);
    for (const Tensor& a : {matmul(few, turned(few)), x * 0.0}) {
      const auto [u, s, vh] = linalg_svd(a, false);
      EXPECT_LE(largest_difference(matmul(u * unsqueeze(s, -2), vh), a), 10 * bound(type));
      EXPECT_LE(from_orthonormal(u), bound(type));
      EXPECT_LE(from_orthonormal(turned(vh)), bound(type));
    }
  }
}

TEST_P(Factorizations, SolversSolve) {
  for (const ScalarType type : types_) {
    const std::vector<int64_t> sizes = GetParam().sizes;
    const Tensor a = definite(random_matrices(sizes, type)) * 0.01;
    const Tensor b = random_matrices(sizes, type, 2);
    const double most = 100 * bound(type);
    EXPECT_LE(largest_difference(matmul(a, linalg_solve(a, b)), b), most);
    EXPECT_LE(largest_difference(matmul(linalg_solve(a, turned(b), false), a), turned(b)), most);
    const Tensor factor = linalg_cholesky(a);
    EXPECT_LE(largest_difference(matmul(factor, turned(factor)), a), bound(type));
    EXPECT_LE(largest_difference(linalg_cholesky(a, true), turned(factor)), bound(type));
    EXPECT_LE(largest_difference(matmul(factor, linalg_solve_triangular(factor, b, false)), b),
              10 * bound(type));
    EXPECT_LE(largest_difference(
                  matmul(turned(factor), linalg_solve_triangular(turned(factor), b, true)), b),
              10 * bound(type));
    const auto [p, l, u] = linalg_lu(random_matrices(sizes, type));
    EXPECT_LE(largest_difference(matmul(matmul(p, l), u), random_matrices(sizes, type)),
              bound(type));
    const auto [values, vectors] = linalg_eigh(a);
    EXPECT_LE(largest_difference(matmul(a, vectors), vectors * unsqueeze(values, -2)),
              4 * bound(type));
    EXPECT_LE(from_orthonormal(vectors), bound(type));
    EXPECT_LE(largest_difference(linalg_eigvalsh(a), values), 4 * bound(type));
  }
}

class FactorizationFaults : public Gpu {};

TEST_F(FactorizationFaults, NameTheMatrix) {
  for (const int64_t n : {6, 200}) {
    Tensor a = eye(n, kFloat32).to(kCUDA).expand({3, n, n}).clone();
    a.select(0, 1).select(0, 2).select(0, 2).fill_(-1);
    const auto [l, info] = linalg_cholesky_ex(a);
    EXPECT_EQ(info.to(kCPU).select(0, 1).item<int>(), 3);
    EXPECT_EQ(info.to(kCPU).select(0, 0).item<int>(), 0);
    a.select(0, 2).select(0, 0).select(0, 0).fill_(std::numeric_limits<float>::infinity());
    std::string message;
    try {
      linalg_eigh(a);
      synchronize(kCUDA);
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_NE(message.find("(batch element 2)"), std::string::npos) << message;
    EXPECT_NE(message.find("non-finite"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace mytorch::testing
