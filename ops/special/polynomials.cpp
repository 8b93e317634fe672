// Orthogonal polynomials by their recurrences: Abramowitz and Stegun, "Handbook of Mathematical
// Functions" (1964), 22.7.
#include <algorithm>
#include <cmath>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/max.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/check.h"

namespace mytorch::composite {
namespace {

// The polynomials of degrees 0 and 1 are 1 and `first`; `next` gives that of degree k from the two
// below it. The types of the operands promote as in a pointwise operator. Sums in float64, because
// the terms cancel.
template <class First, class Next>
Tensor polynomial(const Tensor& self, const Operand& n, const char* op, const First& first,
                  const Next& next) {
  constexpr double kMost = 10000;
  Tensor like = mytorch::zeros_like(self);
  if (n.is_tensor()) like = like + mytorch::zeros_like(n.tensor());
  const ScalarType type = like.is_floating_point() ? like.dtype() : kFloat32;
  const Tensor x = self.detach().to(kFloat64).expand_as(like);
  const Tensor given =
      n.is_tensor() ? n.tensor().detach().to(kFloat64)
                    : mytorch::full(IntList(), n.scalar().to_double(), kFloat64, self.device());
  const Tensor degree = given.trunc().expand_as(like);
  double most = n.is_tensor() ? 0 : n.scalar().to_double();
  if (std::isnan(most)) most = 0;
  if (n.is_tensor() && like.numel() > 0) {
    most = mytorch::max(mytorch::where(degree.isnan(), 0.0, degree)).item().to<double>();
  }
  check_value(!(most >= kMost + 1), op, "n is ", most, ": degrees are at most 10000");
  Tensor below = mytorch::where(degree.ge(0), 1.0, 0.0);
  Tensor result = below;
  if (most < 1) return result.to(type);
  below = mytorch::full(IntList(), 1, kFloat64, self.device());
  Tensor last = first(x);
  result = mytorch::where(degree.ge(1), last, result);
  for (int k = 2; k <= static_cast<int>(most); ++k) {
    Tensor value = next(x, last, below, static_cast<double>(k));
    below = std::move(last);
    last = std::move(value);
    result = mytorch::where(degree.ge(k), last, result);
  }
  return result.to(type);
}

}  // namespace

Tensor special_hermite_polynomial_h(const Tensor& self, const Operand& n) {
  return polynomial(
      self, n, "special_hermite_polynomial_h", [](const Tensor& x) { return x * 2; },
      [](const Tensor& x, const Tensor& last, const Tensor& below, double k) {
        return (x * last - below * (k - 1)) * 2;
      });
}

Tensor special_hermite_polynomial_he(const Tensor& self, const Operand& n) {
  return polynomial(
      self, n, "special_hermite_polynomial_he", [](const Tensor& x) { return x; },
      [](const Tensor& x, const Tensor& last, const Tensor& below, double k) {
        return x * last - below * (k - 1);
      });
}

Tensor special_laguerre_polynomial_l(const Tensor& self, const Operand& n) {
  return polynomial(
      self, n, "special_laguerre_polynomial_l", [](const Tensor& x) { return 1 - x; },
      [](const Tensor& x, const Tensor& last, const Tensor& below, double k) {
        return ((2 * k - 1 - x) * last - below * (k - 1)) / k;
      });
}

Tensor special_legendre_polynomial_p(const Tensor& self, const Operand& n) {
  return polynomial(
      self, n, "special_legendre_polynomial_p", [](const Tensor& x) { return x; },
      [](const Tensor& x, const Tensor& last, const Tensor& below, double k) {
        return (x * last * (2 * k - 1) - below * (k - 1)) / k;
      });
}

}  // namespace mytorch::composite
