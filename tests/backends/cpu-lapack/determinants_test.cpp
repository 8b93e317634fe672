// Gradients of determinants of singular matrices.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "mytorch/autograd.h"
#include "mytorch/mytorch.h"

namespace mytorch {
namespace {

using autograd::grad;
using Matrices = std::function<Tensor(const Tensor&)>;

std::vector<double> listed(const Tensor& x) { return x.to(kFloat64).to_vector<double>(); }

Tensor matrix(const std::vector<double>& elements, int64_t n) {
  return tensor(elements, kFloat64).reshape({n, -1});
}

void expect_near(const Tensor& found, const Tensor& expected, double tolerance) {
  const std::vector<double> list = listed(found), right = listed(expected);
  ASSERT_EQ(list.size(), right.size());
  for (size_t i = 0; i < list.size(); ++i) EXPECT_NEAR(list[i], right[i], tolerance) << i;
}

Tensor det_gradient(const Tensor& at) {
  const Tensor x = at.detach().clone().requires_grad_();
  return grad({linalg_det(x).sum()}, {x})[0];
}

TEST(Determinants, GradientsAtSingularMatrices) {
  // Exactly singular, and singular up to the rounding of the elements.
  expect_near(det_gradient(matrix({1, 2, 3, 6}, 2)), matrix({6, -3, -2, 1}, 2), 1e-14);
  const Tensor rounded = matrix({.1, .2, .3, .6}, 2), right = matrix({.6, -.3, -.2, .1}, 2);
  expect_near(det_gradient(rounded), right, 1e-15);
  expect_near(det_gradient(rounded.to(kFloat32)), right, 1e-6);
  expect_near(det_gradient(zeros({1, 1}, kFloat64)), ones({1, 1}, kFloat64), 0);
  // The determinant underflows.
  expect_near(det_gradient(eye(3, kFloat64) * 1e-120), eye(3, kFloat64) * 1e-240, 1e-250);
}

// Sums of products of the elements, which have no special points.
Tensor cofactors_of(const Tensor& a) {
  const Tensor x = a.roll({-1}, {-2}), y = a.roll({-2}, {-2});
  return x.roll({-1}, {-1}) * y.roll({-2}, {-1}) - x.roll({-2}, {-1}) * y.roll({-1}, {-1});
}

TEST(Determinants, DerivativesOfDeterminantsUpToTheThird) {
  const Tensor u = matrix({.3, -.7, 1.1, .9, .2, -.4}, 3);
  const Tensor v = matrix({.1, .8, -.6, .5, -1.3, .7}, 2);
  const Tensor rank_one = u.narrow(1, 0, 1).matmul(v.narrow(0, 0, 1));
  const Tensor batch = stack({rank_one, u.matmul(v), zeros({3, 3}, kFloat64), eye(3, kFloat64),
                              rank_one + 1e-9 * eye(3, kFloat64)});
  const Tensor weights = (arange(45, kFloat64) * 1.7).sin().reshape({5, 3, 3});
  for (const ScalarType type : {kFloat32, kFloat64}) {
    const double tolerance = type == kFloat32 ? 1e-5 : 1e-13;
    const auto orders = [&](const std::function<Tensor(const Tensor&)>& first) {
      const Tensor x = batch.to(type).requires_grad_(), w = weights.to(type);
      const Tensor g = first(x);
      const Tensor h = grad({g}, {x}, {w}, {.create_graph = true})[0];
      const Tensor third = grad({h}, {x}, {w.roll({1}, {2})})[0];
      return stack({g.detach(), h.detach(), third});
    };
    const Tensor found = orders([](const Tensor& x) {
      return grad({linalg_det(x).sum()}, {x}, {}, {.create_graph = true})[0];
    });
    expect_near(found, orders(cofactors_of), tolerance);
  }
}

TEST(Determinants, ComplexDeterminants) {
  const Tensor real = matrix({1, 2, 3, -1, 1, 0, 2, 1, 3}, 3);
  const Tensor x = complex(real, matrix({0, 1, 1, 2, -1, 1, 2, 0, 2}, 3));
  const Tensor singular = x.index_fill(0, tensor({2}, kInt64), 0.0);
  const auto gradient = [&](const Matrices& f) {
    const Tensor leaf = singular.detach().clone().requires_grad_();
    const Tensor first = grad({mytorch::real(f(leaf))}, {leaf}, {}, {.create_graph = true})[0];
    return view_as_real(first.detach());
  };
  const auto by_rows = [](const Tensor& a) {
    return (a.select(0, 0) * cofactors_of(a).select(0, 0)).sum();
  };
  expect_near(gradient([](const Tensor& a) { return linalg_det(a); }), gradient(by_rows), 1e-13);
}

}  // namespace
}  // namespace mytorch
