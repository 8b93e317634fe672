// Factorizations of small matrices on an emulated device, compared with the reference and with the
// equations that define them. Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/faults.h"
#include "mytorch/abi_ops/geqrf.h"
#include "mytorch/abi_ops/linalg_cholesky_ex.h"
#include "mytorch/abi_ops/linalg_eigh_forward.h"
#include "mytorch/abi_ops/linalg_householder_product.h"
#include "mytorch/abi_ops/linalg_lu_factor_ex.h"
#include "mytorch/abi_ops/linalg_lu_permutation.h"
#include "mytorch/abi_ops/linalg_lu_solve.h"
#include "mytorch/abi_ops/linalg_qr.h"
#include "mytorch/abi_ops/linalg_solve_triangular.h"
#include "mytorch/abi_ops/linalg_svd_forward.h"
#include "mytorch/backend/matrices.h"
#include "mytorch/backend/philox.h"
#include "tests/backends/cuda/emulated/kernels.h"
#include "tests/backends/reference/fake_host.h"

namespace mytorch::testing {
namespace {

// A batch of matrices in row-major numbers.
struct Batch {
  int64_t count, m, n;
  std::vector<double> x;

  double& at(int64_t b, int64_t i, int64_t j) {
    return x[static_cast<size_t>((b * m + i) * n + j)];
  }
  double at(int64_t b, int64_t i, int64_t j) const {
    return x[static_cast<size_t>((b * m + i) * n + j)];
  }
};
Batch random(int64_t count, int64_t m, int64_t n, uint64_t seed) {
  return {count, m, n, uniform_numbers(count * m * n, seed)};
}
Batch product(const Batch& a, const Batch& b) {
  Batch c{a.count, a.m, b.n, std::vector<double>(static_cast<size_t>(a.count * a.m * b.n), 0.0)};
  for (int64_t e = 0; e < a.count; ++e) {
    for (int64_t i = 0; i < a.m; ++i) {
      for (int64_t k = 0; k < a.n; ++k) {
        for (int64_t j = 0; j < b.n; ++j) c.at(e, i, j) += a.at(e, i, k) * b.at(e, k, j);
      }
    }
  }
  return c;
}
Batch turned(const Batch& a) {
  Batch t{a.count, a.n, a.m, a.x};
  for (int64_t e = 0; e < a.count; ++e) {
    for (int64_t i = 0; i < a.m; ++i) {
      for (int64_t j = 0; j < a.n; ++j) t.at(e, j, i) = a.at(e, i, j);
    }
  }
  return t;
}

// Layouts of operands.
enum Layout { kRows, kColumns, kGaps };

template <class T>
TestTensor tensor(const Batch& a, Layout layout) {
  const int64_t gap = layout == kGaps ? 3 : 0;
  const Shape shape = {a.count, a.m, a.n};
  TestTensor memory = TestTensor::empty(sdk::dtype_of<T>, {a.count, a.m + gap, a.n + gap});
  const TestTensor x = layout == kColumns
                           ? memory.as_strided(shape, {a.m * a.n, 1, a.m})
                           : memory.as_strided(shape, {(a.m + gap) * (a.n + gap), a.n + gap, 1});
  for (int64_t e = 0; e < a.count; ++e) {
    for (int64_t i = 0; i < a.m; ++i) {
      for (int64_t j = 0; j < a.n; ++j) {
        const sdk::TensorView v = x.view();
        v.data<T>()[e * v.stride(0) + i * v.stride(1) + j * v.stride(2)] =
            static_cast<T>(a.at(e, i, j));
      }
    }
  }
  return x;
}
Batch batch(const TestTensor& x) {
  const sdk::TensorView v = x.view();
  return {v.size(0), v.size(1), v.size(2), x.values<double>()};
}
// The matrices of a tensor with the precision of its type.
template <class T>
Batch rounded(const Batch& a) {
  return batch(tensor<T>(a, kRows));
}

void compare(const Batch& found, const Batch& expected, double bound) {
  ASSERT_EQ(found.x.size(), expected.x.size());
  double most = 1e-300;
  for (const double x : expected.x) most = std::max(most, std::isnan(x) ? 0 : std::abs(x));
  int wrong = 0;
  for (size_t i = 0; i < found.x.size() && wrong < 3; ++i) {
    const bool same = (std::isnan(found.x[i]) && std::isnan(expected.x[i])) ||
                      std::abs(found.x[i] - expected.x[i]) <= bound * most;
    if (!same) {
      ADD_FAILURE() << "element " << i << " is " << found.x[i] << ", not " << expected.x[i];
    }
    wrong += same ? 0 : 1;
  }
}
Batch unit(int64_t count, int64_t n) {
  Batch one{count, n, n, std::vector<double>(static_cast<size_t>(count * n * n), 0.0)};
  for (int64_t e = 0; e < count; ++e) {
    for (int64_t i = 0; i < n; ++i) one.at(e, i, i) = 1;
  }
  return one;
}
Batch diagonal(const TestTensor& values, int64_t n) {
  const std::vector<double> x = values.values<double>();
  const auto count = static_cast<int64_t>(x.size()) / n;
  Batch d = unit(count, n);
  for (int64_t e = 0; e < count; ++e) {
    for (int64_t i = 0; i < n; ++i) d.at(e, i, i) = x[static_cast<size_t>(e * n + i)];
  }
  return d;
}
Batch positive(int64_t count, int64_t n, uint64_t seed) {
  const Batch x = random(count, n, n, seed);
  Batch a = product(x, turned(x));
  for (int64_t e = 0; e < count; ++e) {
    for (int64_t i = 0; i < n; ++i) a.at(e, i, i) += 1;
  }
  return a;
}
Batch dominant(int64_t count, int64_t n, uint64_t seed) {
  Batch a = random(count, n, n, seed);
  for (int64_t e = 0; e < count; ++e) {
    for (int64_t i = 0; i < n; ++i) a.at(e, i, i) += 3;
  }
  return a;
}

template <class T>
constexpr double kLinalgBound = sizeof(T) == 4 ? 2e-5 : 1e-12;

template <class T>
class EmulatedLinalg : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(EmulatedLinalg, Types);

TYPED_TEST(EmulatedLinalg, CholeskyFactorizesEitherTriangle) {
  using T = TypeParam;
  for (const int64_t n : {1, 2, 7, 32, 33, 60}) {
    for (const bool upper : {false, true}) {
      const Batch a = rounded<T>(positive(3, n, 1));
      const TestTensor self = tensor<T>(a, upper ? kColumns : kGaps);
      const TestTensor l = tensor<T>(a, upper ? kRows : kColumns);
      const TestTensor info = TestTensor::empty(sdk::dtype_of<int32_t>, {3});
      mt_args_linalg_cholesky_ex args{};
      args.self = self;
      args.upper = upper;
      args.L = l;
      args.info = info;
      ASSERT_EQ(run(cuda::register_cholesky, "linalg_cholesky_ex", args, sdk::dtype_of<T>), "");
      const Batch found = batch(l);
      compare(upper ? product(turned(found), found) : product(found, turned(found)), a,
              kLinalgBound<T>);
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = i + 1; j < n; ++j) {
          ASSERT_EQ(upper ? found.at(1, j, i) : found.at(1, i, j), 0);
        }
      }
      EXPECT_EQ(info.values<int>(), (std::vector<int>{0, 0, 0}));
    }
  }
}

TYPED_TEST(EmulatedLinalg, CholeskyOfWhatIsNotPositiveIsNan) {
  using T = TypeParam;
  Batch a = positive(3, 5, 2);
  a.at(1, 3, 3) = -1;
  a.at(2, 4, 4) = std::numeric_limits<double>::quiet_NaN();
  const TestTensor self = tensor<T>(a, kRows), l = tensor<T>(a, kColumns);
  const TestTensor info = TestTensor::empty(sdk::dtype_of<int32_t>, {3});
  mt_args_linalg_cholesky_ex args{};
  args.self = self;
  args.check_errors = 1;
  args.L = l;
  args.info = info;
  mt_ctx any{};
  cuda::fault_of(any)->site = 0;
  ASSERT_EQ(run(cuda::register_cholesky, "linalg_cholesky_ex", args, sdk::dtype_of<T>), "");
  EXPECT_EQ(info.values<int>(), (std::vector<int>{0, 4, 5}));
  const Batch found = batch(l);
  EXPECT_FALSE(std::isnan(found.at(0, 4, 4)));
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 5; ++j) EXPECT_TRUE(std::isnan(found.at(1, i, j)));
  }
  EXPECT_NE(cuda::fault_of(any)->site, 0u);
  EXPECT_EQ(cuda::fault_of(any)->index, 4);
  EXPECT_EQ(cuda::fault_of(any)->size, 1);
}

TYPED_TEST(EmulatedLinalg, LuIsThatOfTheReference) {
  using T = TypeParam;
  for (const Shape& shape : {Shape{1, 1}, Shape{5, 5}, Shape{32, 32}, Shape{40, 33}, Shape{7, 50},
                             Shape{50, 3}, Shape{0, 3}, Shape{3, 0}}) {
    const int64_t m = shape[0], n = shape[1], k = std::min(m, n);
    Batch a = random(3, m, n, 3);
    if (k > 3) {
      for (int64_t i = 0; i < m; ++i) a.at(2, i, 2) = 0;
      a.at(1, 2, 3) = std::numeric_limits<double>::quiet_NaN();
    }
    const TestTensor self = tensor<T>(a, kRows);
    TestTensor lu[2], pivots[2], info[2];
    for (int own = 0; own < 2; ++own) {
      lu[own] = tensor<T>(a, kColumns);
      pivots[own] = TestTensor::empty(sdk::dtype_of<int32_t>, {3, k});
      info[own] = TestTensor::empty(sdk::dtype_of<int32_t>, {3});
      mt_args_linalg_lu_factor_ex args{};
      args.A = self;
      args.pivot = 1;
      args.LU = lu[own];
      args.pivots = pivots[own];
      args.info = info[own];
      ASSERT_EQ(own ? run(cuda::register_lu, "linalg_lu_factor_ex", args, sdk::dtype_of<T>)
                    : run_op("linalg_lu_factor_ex", args, sdk::dtype_of<T>),
                "");
    }
    EXPECT_EQ(pivots[1].values<int>(), pivots[0].values<int>()) << m << " x " << n;
    EXPECT_EQ(info[1].values<int>(), info[0].values<int>());
    compare(batch(lu[1]), batch(lu[0]), 20 * kLinalgBound<T>);
  }
}

TYPED_TEST(EmulatedLinalg, LuSolvesAndPermutesAsTheReference) {
  using T = TypeParam;
  for (const int64_t n : {1, 5, 32, 45, 80}) {
    for (const bool left : {true, false}) {
      for (const bool adjoint : {false, true}) {
        const Batch a = dominant(2, n, 4);
        const Batch b = left ? random(2, n, 9, 5) : random(2, 3, n, 5);
        const TestTensor lu = tensor<T>(a, left ? kColumns : kRows);
        std::vector<double> exchanges;
        for (int64_t i = 0; i < 2 * n; ++i) {
          exchanges.push_back(static_cast<double>(i % n + 1 + (i * 7) % (n - i % n)));
        }
        const TestTensor pivots = TestTensor::of<int32_t>({2, n}, exchanges);
        TestTensor out[2], order[2];
        for (int own = 0; own < 2; ++own) {
          const TestTensor right = tensor<T>(b, adjoint ? kGaps : kColumns);
          out[own] = tensor<T>(b, kColumns);
          mt_args_linalg_lu_solve args{};
          args.LU = lu;
          args.pivots = pivots;
          args.B = right;
          args.left = left;
          args.adjoint = adjoint;
          args.out = out[own];
          ASSERT_EQ(own ? run(cuda::register_solve, "linalg_lu_solve", args, sdk::dtype_of<T>)
                        : run_op("linalg_lu_solve", args, sdk::dtype_of<T>),
                    "");
          order[own] = TestTensor::empty(sdk::dtype_of<int64_t>, {2, n});
          mt_args_linalg_lu_permutation of{};
          of.pivots = pivots;
          of.size = n;
          of.out = order[own];
          ASSERT_EQ(own ? run(cuda::register_lu, "linalg_lu_permutation", of, sdk::dtype_of<T>)
                        : run_op("linalg_lu_permutation", of, sdk::dtype_of<T>),
                    "");
        }
        compare(batch(out[1]), batch(out[0]), 5 * kLinalgBound<T>);
        EXPECT_EQ(order[1].values<int64_t>(), order[0].values<int64_t>());
      }
    }
  }
}

TYPED_TEST(EmulatedLinalg, TrianglesSolveAsTheReference) {
  using T = TypeParam;
  for (const int64_t n : {1, 6, 32, 70}) {
    for (int kind = 0; kind < 8; ++kind) {
      const bool left = (kind & 1) != 0, upper = (kind & 2) != 0, unitary = (kind & 4) != 0;
      Batch a = dominant(2, n, 6);
      for (double& x : a.x) x /= 3;
      const Batch b = left ? random(2, n, 6, 7) : random(2, 5, n, 7);
      TestTensor out[2];
      for (int own = 0; own < 2; ++own) {
        const TestTensor self = tensor<T>(a, upper ? kRows : kGaps), right = tensor<T>(b, kRows);
        out[own] = tensor<T>(b, kColumns);
        mt_args_linalg_solve_triangular args{};
        args.self = self;
        args.B = right;
        args.upper = upper;
        args.left = left;
        args.unitriangular = unitary;
        args.out = out[own];
        ASSERT_EQ(own ? run(cuda::register_solve, "linalg_solve_triangular", args, sdk::dtype_of<T>)
                      : run_op("linalg_solve_triangular", args, sdk::dtype_of<T>),
                  "");
      }
      compare(batch(out[1]), batch(out[0]), 50 * kLinalgBound<T>);
    }
  }
}

TYPED_TEST(EmulatedLinalg, QrIsThatOfTheReference) {
  using T = TypeParam;
  for (const Shape& shape :
       {Shape{1, 1}, Shape{5, 5}, Shape{32, 32}, Shape{40, 21}, Shape{7, 30}, Shape{3, 0}}) {
    const int64_t m = shape[0], n = shape[1], k = std::min(m, n);
    const Batch a = random(2, m, n, 8);
    const TestTensor self = tensor<T>(a, kGaps);
    for (const char* mode : {"reduced", "complete", "r"}) {
      const int64_t columns = std::string(mode) == "complete" ? m : k;
      TestTensor q[2], r[2];
      for (int own = 0; own < 2; ++own) {
        q[own] = tensor<T>(random(2, m, columns, 9), kColumns);
        r[own] = tensor<T>(random(2, columns, n, 9), kColumns);
        mt_args_linalg_qr args{};
        args.A = self;
        args.mode = mode;
        args.Q = q[own];
        args.R = r[own];
        ASSERT_EQ(own ? run(cuda::register_qr, "linalg_qr", args, sdk::dtype_of<T>)
                      : run_op("linalg_qr", args, sdk::dtype_of<T>),
                  "");
      }
      compare(batch(r[1]), batch(r[0]), 10 * kLinalgBound<T>);
      compare(batch(q[1]), batch(q[0]), 50 * kLinalgBound<T>);
    }
    if (k == 0) continue;
    TestTensor packed[2], tau[2];
    for (int own = 0; own < 2; ++own) {
      packed[own] = tensor<T>(a, kColumns);
      tau[own] = TestTensor::empty(sdk::dtype_of<T>, {2, k});
      mt_args_geqrf args{};
      args.self = self;
      args.a = packed[own];
      args.tau = tau[own];
      ASSERT_EQ(own ? run(cuda::register_qr, "geqrf", args, sdk::dtype_of<T>)
                    : run_op("geqrf", args, sdk::dtype_of<T>),
                "");
    }
    compare(batch(packed[1]), batch(packed[0]), 50 * kLinalgBound<T>);
    if (m < n) continue;
    TestTensor out[2];
    for (int own = 0; own < 2; ++own) {
      out[own] = tensor<T>(a, kColumns);
      mt_args_linalg_householder_product args{};
      args.input = packed[0];
      args.tau = tau[0];
      args.out = out[own];
      ASSERT_EQ(own ? run(cuda::register_qr, "linalg_householder_product", args, sdk::dtype_of<T>)
                    : run_op("linalg_householder_product", args, sdk::dtype_of<T>),
                "");
    }
    compare(batch(out[1]), batch(out[0]), 10 * kLinalgBound<T>);
  }
}

TYPED_TEST(EmulatedLinalg, EigenvectorsDiagonalize) {
  using T = TypeParam;
  for (const int64_t n : {1, 2, 3, 8, 17, 32, 33, 50}) {
    for (int kind = 0; kind < 4; ++kind) {
      Batch a = random(2, n, n, 10);
      const Batch t = turned(a);
      for (size_t i = 0; i < a.x.size(); ++i) a.x[i] += t.x[i];
      if (kind == 1) a = unit(2, n);
      if (kind == 2) {  // rank 1
        const Batch x = random(2, n, 1, 11);
        a = product(x, turned(x));
      }
      if (kind == 3) {
        for (double& x : a.x) x *= 1e-30;
      }
      a = rounded<T>(a);
      const bool upper = kind == 0;
      Batch given = a;  // the other triangle is not read
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < i; ++j) {
          (upper ? given.at(0, i, j) : given.at(0, j, i)) = std::nan("");
        }
      }
      const TestTensor self = tensor<T>(given, kGaps), vectors = tensor<T>(a, kColumns);
      const TestTensor values = TestTensor::empty(sdk::dtype_of<T>, {2, n});
      const TestTensor alone = TestTensor::empty(sdk::dtype_of<T>, {2, n});
      mt_args_linalg_eigh_forward args{};
      args.self = self;
      args.UPLO = upper ? "U" : "L";
      args.compute_v = 1;
      args.eigenvalues = values;
      args.eigenvectors = vectors;
      mt_ctx any{};
      cuda::fault_of(any)->site = 0;
      ASSERT_EQ(run(cuda::register_eigenvalues, "linalg_eigh_forward", args, sdk::dtype_of<T>), "");
      args.compute_v = 0;
      args.eigenvalues = alone;
      args.eigenvectors = nullptr;
      ASSERT_EQ(run(cuda::register_eigenvalues, "linalg_eigh_forward", args, sdk::dtype_of<T>), "");
      EXPECT_EQ(cuda::fault_of(any)->site, 0u) << "of size " << n << ", kind " << kind;
      EXPECT_EQ(alone.values<double>(), values.values<double>());
      const Batch v = batch(vectors);
      compare(product(turned(v), v), unit(2, n), 5 * kLinalgBound<T>);
      compare(product(product(v, diagonal(values, n)), turned(v)), a, 5 * kLinalgBound<T>);
      const std::vector<double> found = values.values<double>();
      for (int64_t i = 1; i < n; ++i) {
        EXPECT_LE(found[static_cast<size_t>(i - 1)], found[static_cast<size_t>(i)]);
      }
      for (int64_t j = 0; j < n; ++j) {
        std::vector<double> column;
        for (int64_t i = 0; i < n; ++i) column.push_back(v.at(1, i, j));
        EXPECT_FALSE(sdk::needs_flip(column.data(), n));
      }
    }
  }
}

TYPED_TEST(EmulatedLinalg, SingularVectorsDiagonalize) {
  using T = TypeParam;
  for (const Shape& shape : {Shape{1, 1}, Shape{2, 2}, Shape{5, 5}, Shape{32, 32}, Shape{33, 20},
                             Shape{9, 33}, Shape{50, 7}, Shape{1, 9}}) {
    const int64_t m = shape[0], n = shape[1], k = std::min(m, n);
    for (int kind = 0; kind < 4; ++kind) {
      for (const bool full : {false, true}) {
        if (kind != 0 && !full) continue;
        Batch a = random(2, m, n, 12);
        if (kind == 1) a = product(random(2, m, 1, 13), random(2, 1, n, 14));
        if (kind == 2) std::fill(a.x.begin(), a.x.end(), 0.0);
        if (kind == 3) {
          for (double& x : a.x) x *= 1e30;
        }
        a = rounded<T>(a);
        const int64_t left = full ? m : k, right = full ? n : k;
        const TestTensor self = tensor<T>(a, kind == 0 ? kGaps : kColumns);
        const TestTensor u = tensor<T>(random(2, m, left, 1), kColumns);
        const TestTensor vh = tensor<T>(random(2, right, n, 1), kColumns);
        const TestTensor s = TestTensor::empty(sdk::dtype_of<T>, {2, k});
        const TestTensor alone = TestTensor::empty(sdk::dtype_of<T>, {2, k});
        mt_args_linalg_svd_forward args{};
        args.self = self;
        args.full_matrices = full;
        args.compute_uv = 1;
        args.U = u;
        args.S = s;
        args.Vh = vh;
        mt_ctx any{};
        cuda::fault_of(any)->site = 0;
        ASSERT_EQ(run(cuda::register_singular_values, "linalg_svd_forward", args, sdk::dtype_of<T>),
                  "");
        args.compute_uv = 0;
        args.S = alone;
        ASSERT_EQ(run(cuda::register_singular_values, "linalg_svd_forward", args, sdk::dtype_of<T>),
                  "");
        EXPECT_EQ(cuda::fault_of(any)->site, 0u);
        EXPECT_EQ(alone.values<double>(), s.values<double>());
        const Batch found_u = batch(u), found_v = turned(batch(vh));
        compare(product(turned(found_u), found_u), unit(2, left), 5 * kLinalgBound<T>);
        compare(product(turned(found_v), found_v), unit(2, right), 5 * kLinalgBound<T>);
        Batch sigma{2, left, right, std::vector<double>(static_cast<size_t>(2 * left * right))};
        const std::vector<double> values = s.values<double>();
        for (int64_t e = 0; e < 2; ++e) {
          for (int64_t i = 0; i < k; ++i) {
            sigma.at(e, i, i) = values[static_cast<size_t>(e * k + i)];
            EXPECT_TRUE(i == 0 || sigma.at(e, i, i) <= sigma.at(e, i - 1, i - 1));
          }
        }
        compare(product(product(found_u, sigma), turned(found_v)), a, 5 * kLinalgBound<T>);
        for (int64_t j = 0; j < k; ++j) {
          std::vector<double> column;
          for (int64_t i = 0; i < m; ++i) column.push_back(found_u.at(1, i, j));
          EXPECT_FALSE(sdk::needs_flip(column.data(), m));
        }
      }
    }
  }
}

TYPED_TEST(EmulatedLinalg, WhatIsNotFiniteIsAFault) {
  using T = TypeParam;
  Batch a = positive(2, 6, 15);
  a.at(1, 4, 2) = a.at(1, 2, 4) = std::numeric_limits<double>::infinity();
  const TestTensor self = tensor<T>(a, kRows), u = tensor<T>(a, kColumns),
                   v = tensor<T>(a, kColumns);
  const TestTensor s = TestTensor::empty(sdk::dtype_of<T>, {2, 6});
  mt_ctx any{};
  for (const bool svd : {false, true}) {
    cuda::fault_of(any)->site = 0;
    if (svd) {
      mt_args_linalg_svd_forward args{};
      args.self = self;
      args.compute_uv = 1;
      args.U = u;
      args.S = s;
      args.Vh = v;
      ASSERT_EQ(run(cuda::register_singular_values, "linalg_svd_forward", args, sdk::dtype_of<T>),
                "");
    } else {
      mt_args_linalg_eigh_forward args{};
      args.self = self;
      args.UPLO = "L";
      args.compute_v = 1;
      args.eigenvalues = s;
      args.eigenvectors = u;
      ASSERT_EQ(run(cuda::register_eigenvalues, "linalg_eigh_forward", args, sdk::dtype_of<T>), "");
    }
    EXPECT_NE(cuda::fault_of(any)->site, 0u);
    EXPECT_EQ(cuda::fault_of(any)->size, 1);
  }
}

}  // namespace
}  // namespace mytorch::testing
