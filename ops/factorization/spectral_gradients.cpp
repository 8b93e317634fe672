// Gradients of eigenvalues and singular values, and of their vectors.
#include <tuple>

#include "mytorch/ops/abs.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/conj.h"
#include "mytorch/ops/cumsum.h"
#include "mytorch/ops/diag_embed.h"
#include "mytorch/ops/diagonal.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/imag.h"
#include "mytorch/ops/linalg_eig_forward.h"
#include "mytorch/ops/linalg_eigh_forward.h"
#include "mytorch/ops/linalg_solve_forward.h"
#include "mytorch/ops/linalg_svd_forward.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/mH.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/real.h"
#include "mytorch/ops/where.h"
#include "ops/check.h"
#include "ops/factorization/gradient_terms.h"
#include "ops/gradients.h"

namespace mytorch {

using namespace factorization;

namespace {

Tensor as_diagonal(const Tensor& x) { return mytorch::diag_embed(x); }

// A factor of magnitude 1 of a complex vector (a column) is free, and chosen so that one element is
// real (sdk::unique_factor). Adds to the gradient of vectors what that choice contributes. `turn`
// (..., k) is the change of the loss with the angles of the factors.
Tensor with_phases(const Tensor& grad, const Tensor& vectors, const Tensor& turn) {
  const Tensor size = mytorch::abs(vectors);
  const Tensor near = size >= mytorch::amax(size, {-2}, true) * 0.9;
  const Tensor first = near.logical_and(mytorch::cumsum(near, -2) == 1);
  return grad + mytorch::where(first, turn.unsqueeze(-2) / size, 0.0) * Scalar::complex(0, 1);
}

// The diagonal of a @ b.
Tensor diagonal_of_product(const Tensor& a, const Tensor& b) {
  return mytorch::diagonal(product_of(a, b), 0, -2, -1);
}

}  // namespace

namespace grads {

// Divides by differences of values, or by their distance from 0, what makes their vectors turn.
// Equal values that a function does not tell apart, such as those below the largest one in its
// gradient, pass no gradient to their vectors, and then nothing turns.
static Tensor over_gaps(const Tensor& turns, const Tensor& gaps) {
  const Tensor still = mytorch::logical_and(mytorch::eq(gaps, 0), mytorch::eq(turns, 0));
  return turns / (gaps + still.to(gaps.dtype()));
}

Tensor eigh_backward(const Tensor* grads, const Tensor& a, Str uplo, const Tensor& values,
                     const Tensor& vectors) {
  const bool computed = vectors.dim() == a.dim();
  const Tensor v = computed ? vectors : std::get<1>(mytorch::linalg_eigh_forward(a, uplo, true));
  if (!grads[1].defined() || !computed)
    return product_of(v * grads[0].unsqueeze(-2), mytorch::mH(v));
  Tensor of_v = grads[1];
  if (a.is_complex()) {
    of_v = with_phases(of_v, v, mytorch::imag(diagonal_of_product(mytorch::mH(of_v), v)));
  }
  const Tensor one = unit_of(values, v.size(-1));
  const Tensor gaps = values.unsqueeze(-2) - values.unsqueeze(-1) + one;
  // Only the Hermitian part of a change of the matrix matters.
  const Tensor turns = product_of(mytorch::mH(v), of_v);
  Tensor inner = over_gaps((turns - mytorch::mH(turns)) * 0.5, gaps);
  if (grads[0].defined()) inner = inner + as_diagonal(grads[0]);
  return product_of(product_of(v, inner), mytorch::mH(v));
}

// C. B. Boeddeker et al., On the computation of complex-valued gradients, 2017, with vectors of
// norm 1.
Tensor eig_backward(const Tensor* grads, const Tensor& a, const Tensor& values,
                    const Tensor& vectors) {
  const bool computed = vectors.dim() == a.dim();
  const Tensor v = computed ? vectors : std::get<1>(mytorch::linalg_eig_forward(a, true));
  const Tensor vh = mytorch::mH(v);
  Tensor inner;
  if (grads[0].defined()) inner = as_diagonal(grads[0]);
  if (grads[1].defined() && computed) {
    const Tensor of_v =
        with_phases(grads[1], v, mytorch::imag(diagonal_of_product(mytorch::mH(grads[1]), v)));
    const Tensor product = product_of(vh, of_v);
    const Tensor lengths = mytorch::real(mytorch::diagonal(product, 0, -2, -1));
    const Tensor one = unit_of(v, v.size(-1));
    const Tensor gaps = mytorch::conj(values.unsqueeze(-2) - values.unsqueeze(-1)) + one;
    const Tensor others = product - product_of(vh, v) * lengths.unsqueeze(-2);
    inner = sum_of(inner, over_gaps(others * (1.0 - one), gaps));
  }
  return std::get<0>(mytorch::linalg_solve_forward(vh, product_of(inner, vh), true));
}

Tensor svd_backward(const Tensor* grads, const Tensor& a, const Tensor& u_given, const Tensor& s,
                    const Tensor& vh_given) {
  const int64_t k = s.size(-1);
  Tensor u_all = u_given, vh_all = vh_given;
  const bool computed = u_given.dim() == a.dim();
  if (!computed) {
    std::tie(u_all, std::ignore, vh_all) = mytorch::linalg_svd_forward(a, false, true);
  }
  const Tensor u = mytorch::narrow(u_all, -1, 0, k), vh = mytorch::narrow(vh_all, -2, 0, k);
  if (k == 0) return product_of(u, vh);  // without elements
  if ((!grads[0].defined() && !grads[2].defined()) || !computed) {
    return product_of(u * grads[1].unsqueeze(-2), vh);
  }
  check_value(u_all.size(-1) == k && vh_all.size(-2) == k, "linalg_svd",
              "the gradient of the vectors that full_matrices adds is not defined: call it with "
              "full_matrices false");
  const int64_t m = u.size(-2), n = vh.size(-1);
  const Tensor one = unit_of(s, k);
  const Tensor squares = s * s;
  const Tensor gaps = squares.unsqueeze(-2) - squares.unsqueeze(-1) + one;
  const auto skew = [](const Tensor& x) { return x - mytorch::mH(x); };
  Tensor of_u = grads[0], inner;
  if (a.is_complex()) {  // here, grads[0] or grads[2] is defined
    Tensor turn;
    if (of_u.defined()) turn = diagonal_of_product(mytorch::mH(of_u), u);
    if (grads[2].defined()) turn = sum_of(turn, diagonal_of_product(grads[2], mytorch::mH(vh)));
    of_u =
        with_phases(of_u.defined() ? of_u : zeros_like_shape(u, u.sizes()), u, mytorch::imag(turn));
    // Only the common angle of a left and a right vector is free.
    const Tensor angles = over_gaps(mytorch::imag(diagonal_of_product(mytorch::mH(u), of_u)), s);
    inner = as_diagonal(angles * Scalar::complex(0, 1));
  }
  if (of_u.defined()) {
    inner =
        sum_of(inner, over_gaps(skew(product_of(mytorch::mH(u), of_u)), gaps) * s.unsqueeze(-2));
  }
  if (grads[2].defined()) {
    inner = sum_of(inner,
                   s.unsqueeze(-1) * over_gaps(skew(product_of(vh, mytorch::mH(grads[2]))), gaps));
  }
  if (grads[1].defined()) inner = sum_of(inner, as_diagonal(grads[1]));
  Tensor result = product_of(product_of(u, inner), vh);
  if (of_u.defined() && m > k) {
    const Tensor scaled = over_gaps(of_u, s.unsqueeze(-2));
    result = result + product_of(scaled - product_of(u, product_of(mytorch::mH(u), scaled)), vh);
  }
  if (grads[2].defined() && n > k) {
    const Tensor scaled = over_gaps(grads[2], s.unsqueeze(-1));
    result = result + product_of(u, scaled - product_of(product_of(scaled, mytorch::mH(vh)), vh));
  }
  return result;
}

}  // namespace grads
}  // namespace mytorch
