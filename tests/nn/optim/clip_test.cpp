#include "mytorch/nn/optim/clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "mytorch/ops/allclose.h"
#include "mytorch/ops/complex.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn::optim {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;
using mytorch::testing::values;

class ClipTest : public ::testing::Test {
 protected:
  ClipTest() { give(3, 4, 12); }
  void give(double a, double b, double c) {
    first_.set_grad(filled({2}, {a, b}));
    second_.set_grad(filled({1}, {c}));
  }
  void expect_grads(double a, double b, double c) {
    expect_values(first_.grad(), {a, b});
    expect_values(second_.grad(), {c});
  }

  Tensor first_ = zeros({2}).requires_grad_();
  Tensor second_ = zeros({1}).requires_grad_();
  Tensor without_ = zeros({5}).requires_grad_();
  std::vector<Tensor> all_ = {first_, without_, second_};
};

TEST_F(ClipTest, ScalesAllByOneFactor) {
  EXPECT_NEAR(clip_grad_norm_(all_, 6.5).item<double>(), 13, 1e-5);
  expect_grads(1.5, 2, 6);
  EXPECT_NEAR(clip_grad_norm_(all_, 6.6).item<double>(), 6.5, 1e-5);
  expect_grads(1.5, 2, 6);  // below the bound: unchanged
}

TEST_F(ClipTest, ClipsByTheOneNormAndTheLargestElement) {
  EXPECT_NEAR(clip_grad_norm_(all_, 1.9, 1).item<double>(), 19, 1e-5);
  expect_grads(0.3, 0.4, 1.2);
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_NEAR(clip_grad_norm_(all_, 0.6, inf).item<double>(), 1.2, 1e-6);
  expect_grads(0.15, 0.2, 0.6);
}

TEST_F(ClipTest, NonfiniteGradientsAreErrorsOnRequest) {
  give(NAN, 4, 12);
  expect_error(ErrorCode::kValue, {"[clip_grad_norm_]", "nan"},
               [&] { clip_grad_norm_(all_, 1, 2, /*error_if_nonfinite=*/true); });
  EXPECT_EQ(values(second_.grad())[0], 12);
  EXPECT_TRUE(std::isnan(clip_grad_norm_(all_, 1).item<double>()));
  EXPECT_TRUE(std::isnan(values(second_.grad())[0]));
}

TEST_F(ClipTest, NormsOfHalvesDoNotOverflow) {
  const Tensor half = zeros({2}, kFloat16).requires_grad_();
  half.set_grad(filled({2}, {30000, 40000}, kFloat16));
  EXPECT_NEAR(clip_grad_norm_({half}, 5).item<double>(), 50000, 100);
  expect_values(half.grad(), {3, 4}, 1e-2);
}

TEST_F(ClipTest, NoGradientsAndBadBounds) {
  EXPECT_EQ(clip_grad_norm_({without_}, 1).item<double>(), 0);
  expect_error(ErrorCode::kValue, {"max_norm", "-1"}, [&] { clip_grad_norm_(all_, -1); });
  expect_error(ErrorCode::kValue, {"max_norm", "nan"}, [&] { clip_grad_norm_(all_, NAN); });
  expect_error(ErrorCode::kValue, {"max_value"}, [&] { clip_grad_value_(all_, -1); });
}

TEST_F(ClipTest, ScalesComplexGradients) {
  const Tensor z = zeros({2}, kComplex64).requires_grad_();
  z.set_grad(complex(tensor({3.f, 0.f}), tensor({4.f, 12.f})));
  EXPECT_FLOAT_EQ(clip_grad_norm_({z}, 6.5).item<float>(), 13);
  EXPECT_TRUE(allclose(z.grad(), complex(tensor({1.5f, 0.f}), tensor({2.f, 6.f}))));
}

TEST_F(ClipTest, BoundsValues) {
  give(-30, 0.5, NAN);
  clip_grad_value_(all_, 2);
  expect_grads(-2, 0.5, NAN);
}

}  // namespace
}  // namespace mytorch::nn::optim
