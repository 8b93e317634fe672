// Gradients of determinants.
#include <algorithm>
#include <tuple>

#include "core/tensor/batched.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/conj.h"
#include "mytorch/ops/diagonal.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/imag.h"
#include "mytorch/ops/isfinite.h"
#include "mytorch/ops/linalg_slogdet.h"
#include "mytorch/ops/linalg_solve_forward.h"
#include "mytorch/ops/linalg_svd_forward.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/logical_not.h"
#include "mytorch/ops/mH.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/ne.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/factorization/gradient_terms.h"
#include "ops/gradients.h"

namespace mytorch {

using namespace factorization;

namespace grads {

// Returns the largest number, of all examples inside of vmap.
static int64_t largest_of(Tensor x) {
  while (is_batched(x.impl())) x = all_examples(x);
  return mytorch::amax(x.to(kInt64)).item<int64_t>();
}

// Returns the adjugate and the determinant by the recurrence of Faddeev and Le Verrier. It is a
// polynomial, so that all derivatives exist, and accurate to rounding errors of the norm of `a`.
static Tensors<2> adjugate_and_det(const Tensor& a) {
  const int64_t n = a.size(-1);
  const Tensor one = unit_of(a, n);
  Tensor m = one, coefficient;
  for (int64_t k = 1; k <= n; ++k) {
    const Tensor product = product_of(a, m);
    const Tensor trace = mytorch::diagonal(product, 0, -2, -1).sum(-1).unsqueeze(-1).unsqueeze(-1);
    coefficient = trace * (-1.0 / static_cast<double>(k));
    if (k < n) m = product + coefficient * one;
  }
  const double sign = n % 2 == 0 ? 1 : -1;
  return {m * -sign, coefficient * sign};
}

// The adjugates of matrices of which some are singular, or singular up to rounding. Constant rows
// and columns, the singular vectors of small singular values, make of `a` a regular matrix B. With
// its inverse [[X, Y], [Z, W]], Jacobi's identities are
//   det(a) = det(B) det(W),  adj(a) = det(B) (det(W) X - Y adj(W) Z).
// They hold near `a`, too, so that these are the formulas of derivatives of any order.
static Tensor adjugate_of_singular(const Tensor& a) {
  const int64_t n = a.size(-1);
  const auto [u, s, vh] = mytorch::linalg_svd_forward(a.detach(), false, true);
  const Tensor largest = mytorch::narrow(s, -1, 0, 1);
  const int64_t r = std::max<int64_t>(1, largest_of((s <= largest * 0.01).sum(-1)));
  const Tensor scale = mytorch::where(mytorch::eq(largest, 0), 1, largest);
  const Tensor columns = mytorch::narrow(u, -1, n - r, r), rows = mytorch::narrow(vh, -2, n - r, r);
  const Tensor corner = mytorch::zeros_like(product_of(rows, mytorch::mH(rows)));
  const Tensor bordered = mytorch::cat(
      {mytorch::cat({a / scale.unsqueeze(-1), columns}, -1), mytorch::cat({rows, corner}, -1)}, -2);
  const Tensor inverse =
      std::get<0>(mytorch::linalg_solve_forward(bordered, unit_of(bordered, n + r), true));
  const Tensor top = mytorch::narrow(inverse, -2, 0, n),
               bottom = mytorch::narrow(inverse, -2, n, r);
  const auto [adjugate, det] = adjugate_and_det(mytorch::narrow(bottom, -1, n, r));
  const Tensor others = product_of(mytorch::narrow(top, -1, n, r),
                                   product_of(adjugate, mytorch::narrow(bottom, -1, 0, n)));
  const auto [sign, logarithm] = mytorch::linalg_slogdet(bordered);
  const Tensor power = mytorch::log(scale).squeeze(-1) * static_cast<double>(n - 1);
  const Tensor factor = (sign * mytorch::exp(logarithm + power)).unsqueeze(-1).unsqueeze(-1);
  return factor * (det * mytorch::narrow(top, -1, 0, n) - others);
}

// The matrix of cofactors. It exists for singular matrices, too, whose inverse does not.
Tensor det_backward(const Tensor& grad, const Tensor& a, const Tensor& det) {
  if (a.numel() == 0) return zeros_like_shape(a, a.sizes());
  const Tensor g = grad.unsqueeze(-1).unsqueeze(-1);
  const Tensor factor = mytorch::conj(det).unsqueeze(-1).unsqueeze(-1);
  const Tensor cofactors = std::get<0>(
      mytorch::linalg_solve_forward(mytorch::mH(a), factor * unit_of(a, a.size(-1)), true));
  // The condition number is at least |a| |cofactors| / |det|. The solution loses its digits to it.
  const auto size_of = [](const Tensor& x) {
    return mytorch::amax(mytorch::abs(x.detach()), {-2, -1});
  };
  // If none is left, the solution can be NaN, which compares as neither smaller nor larger.
  const Tensor magnitude = mytorch::abs(det.detach()), size = size_of(a);
  const double least = to_real(a.dtype()) == kFloat64 ? 1e-8 : 3e-4;
  const Tensor finite = mytorch::logical_and(mytorch::isfinite(magnitude), mytorch::isfinite(size));
  const Tensor accurate = mytorch::logical_and(mytorch::ne(magnitude, 0),
                                               magnitude >= size * size_of(cofactors) * least);
  const Tensor singular = mytorch::logical_and(finite, mytorch::logical_not(accurate));
  if (largest_of(singular) == 0) return g * cofactors;
  return g * mytorch::mH(adjugate_of_singular(a));
}

// The sign of a complex determinant turns with it; that of a real one is constant.
Tensor slogdet_backward(const Tensor* grads, const Tensor& a, const Tensor& sign) {
  Tensor g = grads[1];
  if (a.is_complex() && grads[0].defined()) {
    const Tensor turn = mytorch::imag(mytorch::conj(grads[0]) * sign) * Scalar::complex(0, -1);
    g = sum_of(g, turn);
  }
  if (!g.defined() || a.numel() == 0) return zeros_like_shape(a, a.sizes());
  const Tensor right = g.unsqueeze(-1).unsqueeze(-1) * unit_of(a, a.size(-1));
  return std::get<0>(mytorch::linalg_solve_forward(mytorch::mH(a), right, true));
}

}  // namespace grads
}  // namespace mytorch
