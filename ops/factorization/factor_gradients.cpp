// Gradients of triangular and orthogonal factors, and of solvers that use them.
#include <algorithm>
#include <utility>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/argsort.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/conj.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/linalg_lu_permutation.h"
#include "mytorch/ops/linalg_lu_solve.h"
#include "mytorch/ops/linalg_solve_forward.h"
#include "mytorch/ops/linalg_solve_triangular.h"
#include "mytorch/ops/mH.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/tril.h"
#include "mytorch/ops/triu.h"
#include "mytorch/ops/where.h"
#include "ops/check.h"
#include "ops/factorization/factorizations.h"
#include "ops/factorization/gradient_terms.h"
#include "ops/geometry.h"
#include "ops/gradients.h"

namespace mytorch {

using namespace factorization;

namespace {

// The lower triangle with half of the diagonal.
Tensor half_lower(const Tensor& x) { return (mytorch::tril(x) + mytorch::tril(x, -1)) * 0.5; }

Tensor divide_left(const Tensor& triangle, const Tensor& b, bool upper, bool unit = false) {
  return mytorch::linalg_solve_triangular(triangle, b, upper, true, unit);
}
Tensor divide_right(const Tensor& b, const Tensor& triangle, bool upper, bool unit = false) {
  return mytorch::linalg_solve_triangular(triangle, b, upper, false, unit);
}

// Row permutation[i] of the result is row i of `x`.
Tensor permuted_back(const Tensor& x, const Tensor& permutation) {
  const Tensor source = mytorch::argsort(permutation).unsqueeze(-1);
  return mytorch::gather(x, -2, source.expand(x.sizes()));
}
Tensor permuted(const Tensor& x, const Tensor& permutation) {
  Dims batch = broadcast_shapes(
      as_list(batch_of(x)), as_list(geometry::leading_sizes(permutation, 1)), "linalg_lu_solve");
  batch = with_matrix(std::move(batch), x.size(-2), x.size(-1));
  return mytorch::gather(x.expand(as_list(batch)), -2,
                         permutation.unsqueeze(-1).expand(as_list(batch)));
}

}  // namespace

namespace grads {

Tensor cholesky_backward(const Tensor& grad, const Tensor& factor, bool upper) {
  const Tensor l = upper ? mytorch::mH(factor) : factor;
  const Tensor g = upper ? mytorch::mH(grad) : grad;
  const Tensor inner = half_lower(product_of(mytorch::mH(l), g));
  const Tensor whole = divide_right(divide_left(mytorch::mH(l), inner, true), l, false);
  return (whole + mytorch::mH(whole)) * 0.5;
}

// A = P L U. The part of A that L and U of size (k, k) determine is solved with both; the columns
// or rows beyond depend on it through one of them.
Tensor lu_factor_backward(const Tensor& grad, const Tensor& lu, const Tensor& pivots) {
  const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
  const Tensor corner = mytorch::narrow(mytorch::narrow(lu, -2, 0, k), -1, 0, k);
  const Tensor l = mytorch::tril(corner, -1) + unit_of(lu, k), u = mytorch::triu(corner);
  const Tensor g = mytorch::narrow(mytorch::narrow(grad, -2, 0, k), -1, 0, k);
  Tensor of_l = product_of(mytorch::mH(l), mytorch::tril(g, -1));
  Tensor of_u = product_of(mytorch::triu(g), mytorch::mH(u));
  Tensor beyond;  // the gradient of the other columns or rows
  if (n > k) {
    const Tensor rest = mytorch::narrow(grad, -1, k, n - k);
    of_l = of_l - product_of(rest, mytorch::mH(mytorch::narrow(lu, -1, k, n - k)));
    beyond = divide_left(mytorch::mH(l), rest, true, true);
  } else if (m > k) {
    const Tensor rest = mytorch::narrow(grad, -2, k, m - k);
    of_u = of_u - product_of(mytorch::mH(mytorch::narrow(lu, -2, k, m - k)), rest);
    beyond = divide_right(rest, mytorch::mH(u), false);
  }
  const Tensor inner = mytorch::tril(of_l, -1) + mytorch::triu(of_u);
  Tensor result =
      divide_right(divide_left(mytorch::mH(l), inner, true, true), mytorch::mH(u), false);
  if (beyond.defined()) result = mytorch::cat({result, beyond}, n > k ? -1 : -2);
  return permuted_back(result, mytorch::linalg_lu_permutation(pivots, m));
}

Tensors<2> lu_solve_backward(const Tensor& grad, const Tensor& lu, const Tensor& pivots,
                             IntList b_shape, const Tensor& solution, bool left, bool adjoint,
                             const bool* wanted) {
  Tensors<2> found;
  if (wanted[1]) {
    std::get<1>(found) =
        sum_to(mytorch::linalg_lu_solve(lu, pivots, grad, left, !adjoint), b_shape);
  }
  if (!wanted[0]) return found;
  // X A = B is A^H X^H = B^H.
  const Tensor x = left ? solution : mytorch::mH(solution), g = left ? grad : mytorch::mH(grad);
  const Tensor u = mytorch::triu(lu), l = mytorch::tril(lu, -1) + unit_of(lu, lu.size(-1));
  Tensor of_u, of_l;
  if (left != adjoint) {  // U X = W, L W = P^T B
    const Tensor of_w = divide_left(mytorch::mH(u), g, false);
    of_u = product_of(of_w, mytorch::mH(x));
    of_l = product_of(divide_left(mytorch::mH(l), of_w, true, true), mytorch::mH(product_of(u, x)));
  } else {  // L^H Y = Z, U^H Z = B, Y = P^T X
    const Tensor permutation = mytorch::linalg_lu_permutation(pivots, lu.size(-1));
    const Tensor y = permuted(x, permutation);
    const Tensor of_z = divide_left(l, permuted(g, permutation), false, true);
    of_l = product_of(y, mytorch::mH(of_z));
    of_u = product_of(product_of(mytorch::mH(l), y), mytorch::mH(divide_left(u, of_z, true)));
  }
  std::get<0>(found) = sum_to(-(mytorch::triu(of_u) + mytorch::tril(of_l, -1)), lu.sizes());
  return found;
}

Tensors<2> solve_triangular_backward(const Tensor& grad, const Tensor& a, IntList b_shape,
                                     const Tensor& solution, bool upper, bool left, bool unit,
                                     const bool* wanted) {
  const Tensor of_b = mytorch::linalg_solve_triangular(mytorch::mH(a), grad, !upper, left, unit);
  Tensors<2> found;
  if (wanted[0]) {
    const Tensor whole =
        left ? -product_of(of_b, mytorch::mH(solution)) : -product_of(mytorch::mH(solution), of_b);
    std::get<0>(found) =
        sum_to(upper ? mytorch::triu(whole, unit ? 1 : 0) : mytorch::tril(whole, unit ? -1 : 0),
               a.sizes());
  }
  if (wanted[1]) std::get<1>(found) = sum_to(of_b, b_shape);
  return found;
}

Tensors<2> solve_forward_backward(const Tensor* grads, const Tensor& a, IntList b_shape,
                                  const Tensor& solution, const Tensor& lu, const Tensor& pivots,
                                  bool left, const bool* wanted) {
  Tensors<2> found;
  if (grads[0].defined()) {
    // The saved factorization is not a function of A for a second derivative's engine.
    const Tensor of_b =
        grad_enabled() ? std::get<0>(mytorch::linalg_solve_forward(mytorch::mH(a), grads[0], left))
                       : mytorch::linalg_lu_solve(lu, pivots, grads[0], left, true);
    if (wanted[0]) {
      std::get<0>(found) = sum_to(left ? -product_of(of_b, mytorch::mH(solution))
                                       : -product_of(mytorch::mH(solution), of_b),
                                  a.sizes());
    }
    if (wanted[1]) std::get<1>(found) = sum_to(of_b, b_shape);
  }
  if (grads[1].defined() && wanted[0]) {
    std::get<0>(found) = sum_of(std::get<0>(found), lu_factor_backward(grads[1], lu, pivots));
  }
  return found;
}

// Takes the product apart, one reflection after the other: P_i = H_i P_(i+1), and the inverse of
// I - t v v^H is I - t / (t v^H v - 1) v v^H.
Tensors<2> householder_product_backward(const Tensor& grad, const Tensor& input, const Tensor& tau,
                                        const Tensor& result, const bool*) {
  const int64_t m = input.size(-2), n = input.size(-1), k = tau.size(-1);
  const Tensor rows = mytorch::arange(m, kInt64, input.device()).unsqueeze(1);
  Tensor product = result, g = grad;
  std::vector<Tensor> of_vectors, of_factors;
  for (int64_t i = 0; i < k; ++i) {
    const Tensor v = mytorch::where(rows > i, mytorch::narrow(input, -1, i, 1),
                                    mytorch::eq(rows, i).to(input.dtype()));
    const Tensor factor = mytorch::narrow(tau, -1, i, 1).unsqueeze(-1);
    const Tensor inverse = factor / (factor * product_of(mytorch::mH(v), v) - 1.0);
    product = product - product_of(inverse * v, product_of(mytorch::mH(v), product));
    const Tensor w = product_of(mytorch::mH(v), product), z = product_of(mytorch::mH(v), g);
    of_factors.push_back(-mytorch::sum(mytorch::conj(w) * z, {-1}));
    const Tensor of_v = -factor * product_of(product, mytorch::mH(z)) -
                        mytorch::conj(factor) * product_of(g, mytorch::mH(w));
    of_vectors.push_back(of_v * (rows > i).to(input.dtype()));
    g = g - product_of(mytorch::conj(factor) * v, z);
  }
  if (k < n || k == 0) {
    of_vectors.push_back(zeros_like_shape(input, as_list(with_matrix(batch_of(input), m, n - k))));
  }
  return {mytorch::cat(of_vectors, -1),
          k == 0 ? zeros_like_shape(tau, tau.sizes()) : mytorch::cat(of_factors, -1)};
}

Tensor qr_backward(const Tensor* grads, const Tensor& q, const Tensor& r, Str mode) {
  const char* op = "linalg_qr";
  check_value(mode != "r", op,
              "the gradient needs Q, which mode 'r' does not compute: use reduced");
  const int64_t m = q.size(-2), n = r.size(-1), k = std::min(m, n);
  if (k == 0) return product_of(q, r);  // without elements
  check_value(mode == "reduced" || m <= n, op,
              "mode 'complete' has no gradient for matrices with more rows than columns: the added "
              "columns of Q are not unique. Use reduced");
  // The first k columns determine Q; the others are Q @ R.
  const Tensor r1 = mytorch::narrow(r, -1, 0, k);
  Tensor of_q = grads[0], of_r1, of_rest;
  if (grads[1].defined()) of_r1 = mytorch::narrow(grads[1], -1, 0, k);
  if (n > k) {
    of_rest = zeros_like_shape(r, as_list(with_matrix(batch_of(r), m, n - k)));
    if (grads[1].defined()) {
      const Tensor g = mytorch::narrow(grads[1], -1, k, n - k);
      of_rest = product_of(q, g);
      of_q =
          sum_of(of_q, product_of(product_of(q, mytorch::narrow(r, -1, k, n - k)), mytorch::mH(g)));
    }
  }
  Tensor inner;
  if (of_r1.defined()) inner = product_of(r1, mytorch::mH(of_r1));
  if (of_q.defined()) inner = sum_of(inner, -product_of(mytorch::mH(of_q), q));
  const Tensor half = half_lower(inner);
  Tensor result = product_of(q, half + mytorch::mH(half));
  if (of_q.defined()) result = result + of_q;
  result = divide_right(result, mytorch::mH(r1), false);
  return n > k ? mytorch::cat({result, of_rest}, -1) : result;
}

}  // namespace grads
}  // namespace mytorch
