// Tensors as matrices of Eigen. Skipped without Eigen.
#include <gtest/gtest.h>

#if __has_include(<Eigen/Core>)

#include "mytorch/eigen.h"
#include "mytorch/ops/arange.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch {
namespace {

using testing::expect_error;
using testing::values;
using Numbers = std::vector<double>;

TEST(Eigen, MapsShareMemoryAndFollowStrides) {
  const Tensor x = arange(6, kFloat64).reshape({2, 3});
  auto m = as_eigen_matrix<double>(x);
  auto t = as_eigen_matrix<double>(x.t());
  EXPECT_EQ(m(1, 2), 5);
  EXPECT_EQ(t(2, 1), 5);
  EXPECT_EQ((m * t)(0, 1), 0 * 3 + 1 * 4 + 2 * 5);
  m(0, 0) = 9;
  as_eigen_vector<double>(x.select(1, 2)) *= 10;
  EXPECT_EQ(values(x), (Numbers{9, 1, 20, 3, 4, 50}));
}

TEST(Eigen, ExpressionsBecomeTensors) {
  Eigen::MatrixXf m(2, 3);
  m << 1, 2, 3, 4, 5, 6;
  const Tensor x = from_eigen(2 * m);
  EXPECT_EQ(x.dtype(), kFloat32);
  EXPECT_EQ(x.sizes().vec(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(values(x), (Numbers{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(from_eigen(Eigen::Vector3d(1, 2, 3)).sizes().vec(), (std::vector<int64_t>{3}));
  EXPECT_EQ(from_eigen(Eigen::MatrixXd(0, 4)).sizes().vec(), (std::vector<int64_t>{0, 4}));
}

TEST(Eigen, OtherTypesAndShapesAreRefused) {
  const Tensor x = arange(6, kFloat32).reshape({2, 3});
  expect_error(ErrorCode::kType, {"float32", "float64"}, [&] { as_eigen_matrix<double>(x); });
  expect_error(ErrorCode::kShape, {"(2, 3)"}, [&] { as_eigen_vector<float>(x); });
}

}  // namespace
}  // namespace mytorch

#else

TEST(Eigen, MapsShareMemoryAndFollowStrides) { GTEST_SKIP() << "Eigen is not installed"; }

#endif
