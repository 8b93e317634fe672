// Special functions that consist of others.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cos.h"
#include "mytorch/ops/digamma.h"
#include "mytorch/ops/lgamma.h"
#include "mytorch/ops/special_zeta.h"
#include "mytorch/ops/trigamma.h"
#include "mytorch/ops/where.h"
#include "ops/check.h"
#include "ops/precision.h"

namespace mytorch::composite {
namespace {

// The coefficients of the derivative of order n of cot, as a polynomial in cot: cot' is -1 - cot^2.
std::vector<double> cot_derivative(int64_t n) {
  std::vector<double> p = {0, 1};
  for (int64_t k = 0; k < n; ++k) {
    std::vector<double> next(p.size() + 1, 0.0);
    for (size_t i = 1; i < p.size(); ++i) {
      next[i - 1] -= static_cast<double>(i) * p[i];
      next[i + 1] -= static_cast<double>(i) * p[i];
    }
    p = std::move(next);
  }
  return p;
}

}  // namespace

Tensor polygamma(int64_t n, const Tensor& self) {
  const char* op = "polygamma";
  // The factorial of 171 and the coefficients of the reflection overflow.
  check_value(n >= 0 && n <= 100, op, "n is ", n, ": it must be in [0, 100]");
  if (n == 0) return mytorch::digamma(self);
  if (n == 1) return mytorch::trigamma(self);
  const Tensor x = self.is_floating_point() ? self : self.to(kFloat32);
  const double order = static_cast<double>(n);
  const double sign = n % 2 == 0 ? -1 : 1;
  const double factor = sign * std::tgamma(order + 1);
  const Tensor reflected = mytorch::where(x < 0, 1 - x, x);
  const Tensor orders = mytorch::arange(n + 1, n + 2, x.dtype(), x.device());
  const Tensor positive = mytorch::special_zeta(orders.reshape(IntList()), reflected) * factor;
  // (-1)^n polygamma(1 - x) - polygamma(x) is the derivative of order n of pi cot(pi x).
  // For positive x, whose cotangent may be infinite, any number serves.
  const Tensor part = mytorch::where(x < 0, x - x.detach().round(), 0.25) * std::numbers::pi;
  const Tensor cot = mytorch::cos(part) / part.sin();
  const std::vector<double> p = cot_derivative(n);
  Tensor slope = cot * p.back();
  for (size_t i = p.size() - 1; i-- > 1;) slope = (slope + p[i]) * cot;
  if (p[0] != 0) slope = slope + p[0];
  const Tensor negative = positive * -sign - slope * std::pow(std::numbers::pi, order + 1);
  // At a negative integer, both sides have a pole of even or odd order.
  const Tensor pole = x.detach().round().eq(x.detach()).logical_and(x.detach() < 0);
  return mytorch::where(x < 0, mytorch::where(pole, n % 2 == 0 ? NAN : HUGE_VAL, negative),
                        positive);
}

Tensor mvlgamma(const Tensor& self, int64_t p) {
  const char* op = "mvlgamma";
  check_value(p >= 1, op, "p is ", p, ": it must be positive");
  constexpr int64_t kMost = 1 << 20;
  check_value(p <= kMost, op, "p is ", p, ", more than ", kMost);
  check_type(self.dtype() != kBool, op, "self is bool: convert it to a number type");
  const Tensor x = self.is_floating_point() ? self : self.to(kFloat32);
  const double dims = static_cast<double>(p);
  const double constant = dims * (dims - 1) / 4 * std::log(std::numbers::pi);
  constexpr int64_t kFew = 64;
  if (p > kFew) {
    const Tensor halves = mytorch::arange(0, p, x.dtype(), x.device()) * -0.5;
    return mytorch::lgamma(x.unsqueeze(-1) + halves).sum(-1) + constant;
  }
  const Tensor wide = widened(x);
  Tensor sum = mytorch::lgamma(wide);
  for (int64_t i = 1; i < p; ++i) {
    sum = sum + mytorch::lgamma(wide - 0.5 * static_cast<double>(i));
  }
  return (sum + constant).to(x.dtype());
}

}  // namespace mytorch::composite
