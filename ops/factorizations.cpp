// Factorizations of matrices and triangular solvers: the geometry of their results, and gradients.
#include "ops/factorizations.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/any.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/argsort.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/diag_embed.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/eye.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/linalg_det.h"
#include "mytorch/ops/linalg_lu_permutation.h"
#include "mytorch/ops/linalg_lu_solve.h"
#include "mytorch/ops/linalg_matrix_exp.h"
#include "mytorch/ops/linalg_pinv.h"
#include "mytorch/ops/linalg_solve_forward.h"
#include "mytorch/ops/linalg_solve_triangular.h"
#include "mytorch/ops/linalg_svd_forward.h"
#include "mytorch/ops/masked_fill.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/prod.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/ops/tril.h"
#include "mytorch/ops/triu.h"
#include "mytorch/ops/where.h"
#include "ops/check.h"
#include "ops/geometry.h"
#include "ops/gradients.h"

namespace mytorch {

void check_factorizable(const Tensor& x, const char* name, const char* op) {
  check_type(x.dtype() == kFloat32 || x.dtype() == kFloat64, op, name, " is ", x.dtype(),
             ": matrices are factorized in float32 and float64, convert it");
  check_shape(x.dim() >= 2, op, name, " has shape ", x.sizes(),
              ": it must be a matrix, or a batch ", "of matrices (..., m, n)");
}

void check_square(const Tensor& x, const char* name, const char* op) {
  check_factorizable(x, name, op);
  check_shape(x.size(-1) == x.size(-2), op, name, " has shape ", x.sizes(),
              ": its last two dimensions must be equal");
}

namespace {

// The result with the last two dimensions in column-major order.
TensorSpec in_columns(const Tensor& x, Dims sizes) {
  TensorSpec spec = like(x, std::move(sizes));
  const size_t n = spec.sizes.size();
  spec.strides.resize(n);
  Wide step = 1;
  const auto place = [&](size_t d) {
    spec.strides[d] = checked(step, "linalg", "the size");
    step *= std::max<int64_t>(spec.sizes[d], 1);
  };
  place(n - 2);
  place(n - 1);
  for (size_t d = n - 2; d-- > 0;) place(d);
  return spec;
}

Dims with_matrix(Dims batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}
Dims with_vector(Dims batch, int64_t size) {
  batch.push_back(size);
  return batch;
}
Dims batch_of(const Tensor& x) { return geometry::leading_sizes(x, 2); }
int64_t smaller_side(const Tensor& x) { return std::min(x.size(-2), x.size(-1)); }

TensorSpec solution_of(const Tensor& a, const char* name, const Tensor& b, bool left,
                       const char* op) {
  check_square(a, name, op);
  check_factorizable(b, "B", op);
  check_same_type(a, name, b, "B", op);
  const int64_t side = b.size(left ? -2 : -1);
  check_shape(side == a.size(-1), op, "B, of shape ", b.sizes(), ", has ", side,
              left ? " rows, but " : " columns, but ", name, ", of shape ", a.sizes(), ", has ",
              a.size(-1));
  Dims sizes = broadcast_shapes(as_list(batch_of(a)), as_list(batch_of(b)), op);
  return in_columns(b, with_matrix(std::move(sizes), b.size(-2), b.size(-1)));
}

void check_pivots(const Tensor& pivots, const char* op) {
  check_type(pivots.dtype() == kInt32, op, "pivots is ", pivots.dtype(), ": it must be int32");
}

}  // namespace

namespace shape {

Specs<2> linalg_cholesky_ex(const Tensor& self, bool, bool) {
  check_square(self, "self", "linalg_cholesky_ex");
  return {in_columns(self, to_dims(self.sizes())), like(self, batch_of(self), kInt32)};
}

Specs<3> linalg_lu_factor_ex(const Tensor& a, bool pivot, bool) {
  check_factorizable(a, "A", "linalg_lu_factor_ex");
  check_value(pivot, "linalg_lu_factor_ex",
              "pivot is false, which no backend supports: without pivoting the factorization is "
              "unstable");
  return {in_columns(a, to_dims(a.sizes())),
          like(a, with_vector(batch_of(a), smaller_side(a)), kInt32), like(a, batch_of(a), kInt32)};
}

TensorSpec linalg_lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left,
                           bool) {
  const char* op = "linalg_lu_solve";
  TensorSpec spec = solution_of(lu, "LU", b, left, op);
  check_pivots(pivots, op);
  check_shape(pivots.sizes() == as_list(with_vector(batch_of(lu), lu.size(-1))), op,
              "pivots has shape ", pivots.sizes(), ", which is not that of LU, ", lu.sizes(),
              ", without its last dimension");
  return spec;
}

TensorSpec linalg_solve_triangular(const Tensor& self, const Tensor& b, bool, bool left, bool) {
  return solution_of(self, "self", b, left, "linalg_solve_triangular");
}

Specs<2> geqrf(const Tensor& self) {
  check_factorizable(self, "self", "geqrf");
  return {in_columns(self, to_dims(self.sizes())),
          like(self, with_vector(batch_of(self), smaller_side(self)))};
}

TensorSpec linalg_householder_product(const Tensor& input, const Tensor& tau) {
  const char* op = "linalg_householder_product";
  check_factorizable(input, "input", op);
  check_same_type(input, "input", tau, "tau", op);
  check_shape(input.size(-2) >= input.size(-1), op, "input has shape ", input.sizes(),
              ": it must not have more columns than rows");
  check_shape(tau.dim() + 1 == input.dim() && tau.size(-1) <= input.size(-1) &&
                  as_list(geometry::leading_sizes(tau, 1)) == as_list(batch_of(input)),
              op, "tau has shape ", tau.sizes(), ": it must be the batch of input, of shape ",
              input.sizes(), ", and at most one factor for each column");
  return in_columns(input, to_dims(input.sizes()));
}

Specs<2> linalg_eigh_forward(const Tensor& self, Str uplo, bool compute_v) {
  const char* op = "linalg_eigh";
  check_square(self, "self", op);
  check_value(uplo == "L" || uplo == "U" || uplo == "l" || uplo == "u", op, "UPLO is '", uplo,
              "': it must be L or U");
  return {like(self, with_vector(batch_of(self), self.size(-1))),
          compute_v ? in_columns(self, to_dims(self.sizes())) : like(self, {0})};
}

Specs<3> linalg_svd_forward(const Tensor& self, bool full_matrices, bool compute_uv) {
  check_factorizable(self, "A", "linalg_svd");
  const int64_t m = self.size(-2), n = self.size(-1), k = std::min(m, n);
  const Dims batch = batch_of(self);
  TensorSpec values = like(self, with_vector(batch, k));
  if (!compute_uv) return {like(self, {0}), std::move(values), like(self, {0})};
  return {in_columns(self, with_matrix(batch, m, full_matrices ? m : k)), std::move(values),
          in_columns(self, with_matrix(batch, full_matrices ? n : k, n))};
}

TensorSpec linalg_lu_permutation(const Tensor& pivots, int64_t size) {
  const char* op = "linalg_lu_permutation";
  check_pivots(pivots, op);
  check_shape(pivots.dim() >= 1 && pivots.size(-1) <= size, op, "pivots has shape ", pivots.sizes(),
              ": its last dimension must have at most ", size, " exchanges");
  return like(pivots, with_vector(geometry::leading_sizes(pivots, 1), size), kInt64);
}

}  // namespace shape

// ---- gradients
// --------------------------------------------------------------------------------------

namespace {

Tensor flipped(const Tensor& x) { return mytorch::transpose(x, -2, -1); }
Tensor product_of(const Tensor& a, const Tensor& b) { return mytorch::matmul(a, b); }
Tensor unit_of(const Tensor& like, int64_t n) {
  return mytorch::eye(n, like.dtype(), like.device());
}
// The lower triangle with half of the diagonal.
Tensor half_lower(const Tensor& x) { return (mytorch::tril(x) + mytorch::tril(x, -1)) * 0.5; }
Tensor as_diagonal(const Tensor& x) { return mytorch::diag_embed(x); }
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
Tensor sum_of(const Tensor& a, const Tensor& b) {
  return !a.defined() ? b : !b.defined() ? a : a + b;
}

}  // namespace

namespace grads {

Tensor cholesky_backward(const Tensor& grad, const Tensor& factor, bool upper) {
  const Tensor l = upper ? flipped(factor) : factor;
  const Tensor g = upper ? flipped(grad) : grad;
  const Tensor inner = half_lower(product_of(flipped(l), g));
  const Tensor whole = divide_right(divide_left(flipped(l), inner, true), l, false);
  return (whole + flipped(whole)) * 0.5;
}

// A = P L U. The part of A that L and U of size (k, k) determine is solved with both; the columns
// or rows beyond depend on it through one of them.
Tensor lu_factor_backward(const Tensor& grad, const Tensor& lu, const Tensor& pivots) {
  const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
  const Tensor corner = mytorch::narrow(mytorch::narrow(lu, -2, 0, k), -1, 0, k);
  const Tensor l = mytorch::tril(corner, -1) + unit_of(lu, k), u = mytorch::triu(corner);
  const Tensor g = mytorch::narrow(mytorch::narrow(grad, -2, 0, k), -1, 0, k);
  Tensor of_l = product_of(flipped(l), mytorch::tril(g, -1));
  Tensor of_u = product_of(mytorch::triu(g), flipped(u));
  Tensor beyond;  // the gradient of the other columns or rows
  if (n > k) {
    const Tensor rest = mytorch::narrow(grad, -1, k, n - k);
    of_l = of_l - product_of(rest, flipped(mytorch::narrow(lu, -1, k, n - k)));
    beyond = divide_left(flipped(l), rest, true, true);
  } else if (m > k) {
    const Tensor rest = mytorch::narrow(grad, -2, k, m - k);
    of_u = of_u - product_of(flipped(mytorch::narrow(lu, -2, k, m - k)), rest);
    beyond = divide_right(rest, flipped(u), false);
  }
  const Tensor inner = mytorch::tril(of_l, -1) + mytorch::triu(of_u);
  Tensor result = divide_right(divide_left(flipped(l), inner, true, true), flipped(u), false);
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
  // X A = B is A^T X^T = B^T.
  const Tensor x = left ? solution : flipped(solution), g = left ? grad : flipped(grad);
  const Tensor u = mytorch::triu(lu), l = mytorch::tril(lu, -1) + unit_of(lu, lu.size(-1));
  Tensor of_u, of_l;
  if (left != adjoint) {  // U X = W, L W = P^T B
    const Tensor of_w = divide_left(flipped(u), g, false);
    of_u = product_of(of_w, flipped(x));
    of_l = product_of(divide_left(flipped(l), of_w, true, true), flipped(product_of(u, x)));
  } else {  // L^T Y = Z, U^T Z = B, Y = P^T X
    const Tensor permutation = mytorch::linalg_lu_permutation(pivots, lu.size(-1));
    const Tensor y = permuted(x, permutation);
    const Tensor of_z = divide_left(l, permuted(g, permutation), false, true);
    of_l = product_of(y, flipped(of_z));
    of_u = product_of(product_of(flipped(l), y), flipped(divide_left(u, of_z, true)));
  }
  std::get<0>(found) = sum_to(-(mytorch::triu(of_u) + mytorch::tril(of_l, -1)), lu.sizes());
  return found;
}

Tensors<2> solve_triangular_backward(const Tensor& grad, const Tensor& a, IntList b_shape,
                                     const Tensor& solution, bool upper, bool left, bool unit,
                                     const bool* wanted) {
  const Tensor of_b = mytorch::linalg_solve_triangular(flipped(a), grad, !upper, left, unit);
  Tensors<2> found;
  if (wanted[0]) {
    const Tensor whole =
        left ? -product_of(of_b, flipped(solution)) : -product_of(flipped(solution), of_b);
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
    const Tensor of_b = grad_enabled()
                            ? std::get<0>(mytorch::linalg_solve_forward(flipped(a), grads[0], left))
                            : mytorch::linalg_lu_solve(lu, pivots, grads[0], left, true);
    if (wanted[0]) {
      std::get<0>(found) =
          sum_to(left ? -product_of(of_b, flipped(solution)) : -product_of(flipped(solution), of_b),
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
// I - t v v^T is I - t / (t v^T v - 1) v v^T.
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
    const Tensor inverse = factor / (factor * product_of(flipped(v), v) - 1.0);
    product = product - product_of(inverse * v, product_of(flipped(v), product));
    const Tensor w = product_of(flipped(v), product), z = product_of(flipped(v), g);
    of_factors.push_back(-mytorch::sum(w * z, {-1}));
    const Tensor of_v = -factor * (product_of(product, flipped(z)) + product_of(g, flipped(w)));
    of_vectors.push_back(of_v * (rows > i).to(input.dtype()));
    g = g - product_of(factor * v, z);
  }
  if (k < n || k == 0) {
    of_vectors.push_back(zeros_like_shape(input, as_list(with_matrix(batch_of(input), m, n - k))));
  }
  return {mytorch::cat(of_vectors, -1),
          k == 0 ? zeros_like_shape(tau, tau.sizes()) : mytorch::cat(of_factors, -1)};
}

Tensor eigh_backward(const Tensor* grads, const Tensor& values, const Tensor& vectors) {
  check_value(vectors.numel() != 0 || values.numel() == 0, "linalg_eigh_forward",
              "the gradient needs the eigenvectors: call it with compute_v");
  const Tensor& v = vectors;
  if (!grads[1].defined()) return product_of(v * grads[0].unsqueeze(-2), flipped(v));
  const Tensor one = unit_of(v, v.size(-1));
  const Tensor gaps = values.unsqueeze(-2) - values.unsqueeze(-1) + one;
  Tensor inner = product_of(flipped(v), grads[1]) / gaps * (1.0 - one);
  if (grads[0].defined()) inner = inner + as_diagonal(grads[0]);
  return product_of(product_of(v, inner), flipped(v));
}

Tensor svd_backward(const Tensor* grads, const Tensor& u_all, const Tensor& s,
                    const Tensor& vh_all) {
  const int64_t k = s.size(-1);
  check_value(u_all.numel() != 0 || s.numel() == 0, "linalg_svd_forward",
              "the gradient needs the singular vectors: call it with compute_uv");
  const Tensor u = mytorch::narrow(u_all, -1, 0, k), vh = mytorch::narrow(vh_all, -2, 0, k);
  if (!grads[0].defined() && !grads[2].defined()) {
    return product_of(u * grads[1].unsqueeze(-2), vh);
  }
  check_value(u_all.size(-1) == k && vh_all.size(-2) == k, "linalg_svd",
              "the gradient of the vectors that full_matrices adds is not defined: call it with "
              "full_matrices false");
  const int64_t m = u.size(-2), n = vh.size(-1);
  const Tensor one = unit_of(s, k);
  const Tensor squares = s * s;
  const Tensor gaps = squares.unsqueeze(-2) - squares.unsqueeze(-1) + one;
  const auto skew = [](const Tensor& x) { return x - flipped(x); };
  Tensor inner;
  if (grads[0].defined()) {
    inner = skew(product_of(flipped(u), grads[0])) / gaps * s.unsqueeze(-2);
  }
  if (grads[2].defined()) {
    inner = sum_of(inner, s.unsqueeze(-1) * (skew(product_of(vh, flipped(grads[2]))) / gaps));
  }
  if (grads[1].defined()) inner = inner + as_diagonal(grads[1]);
  Tensor result = product_of(product_of(u, inner), vh);
  if (grads[0].defined() && m > k) {
    const Tensor scaled = grads[0] / s.unsqueeze(-2);
    result = result + product_of(scaled - product_of(u, product_of(flipped(u), scaled)), vh);
  }
  if (grads[2].defined() && n > k) {
    const Tensor scaled = grads[2] / s.unsqueeze(-1);
    result = result + product_of(u, scaled - product_of(product_of(scaled, flipped(vh)), vh));
  }
  return result;
}

Tensor qr_backward(const Tensor* grads, const Tensor& q, const Tensor& r, Str mode) {
  const char* op = "linalg_qr";
  check_value(mode != "r", op,
              "the gradient needs Q, which mode 'r' does not compute: use reduced");
  const int64_t m = q.size(-2), n = r.size(-1), k = std::min(m, n);
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
      of_q = sum_of(of_q, product_of(product_of(q, mytorch::narrow(r, -1, k, n - k)), flipped(g)));
    }
  }
  Tensor inner;
  if (of_r1.defined()) inner = product_of(r1, flipped(of_r1));
  if (of_q.defined()) inner = sum_of(inner, -product_of(flipped(of_q), q));
  const Tensor half = half_lower(inner);
  Tensor result = product_of(q, half + flipped(half));
  if (of_q.defined()) result = result + of_q;
  result = divide_right(result, flipped(r1), false);
  return n > k ? mytorch::cat({result, of_rest}, -1) : result;
}

// The matrix of cofactors. It exists for singular matrices, too, whose inverse does not.
Tensor det_backward(const Tensor& grad, const Tensor& a, const Tensor& det) {
  if (a.numel() == 0) return zeros_like_shape(a, a.sizes());
  const Tensor one = unit_of(a, a.size(-1));
  const Tensor g = grad.unsqueeze(-1).unsqueeze(-1);
  if (!mytorch::any(mytorch::eq(det, 0)).item<bool>()) {
    const Tensor right = g * det.unsqueeze(-1).unsqueeze(-1) * one;
    return std::get<0>(mytorch::linalg_solve_forward(flipped(a), right, true));
  }
  const auto [u, s, vh] = mytorch::linalg_svd_forward(a, false, true);
  const Tensor others = s.unsqueeze(-2) * (1.0 - one) + one;
  const Tensor sign = (mytorch::linalg_det(u) * mytorch::linalg_det(vh)).unsqueeze(-1);
  return g * product_of(u * (sign * mytorch::prod(others, -1)).unsqueeze(-2), vh);
}

Tensor slogdet_backward(const Tensor* grads, const Tensor& a) {
  if (!grads[1].defined() || a.numel() == 0) return zeros_like_shape(a, a.sizes());
  const Tensor right = grads[1].unsqueeze(-1).unsqueeze(-1) * unit_of(a, a.size(-1));
  return std::get<0>(mytorch::linalg_solve_forward(flipped(a), right, true));
}

// G. H. Golub, V. Pereyra, The differentiation of pseudo-inverses, 1973, for constant rank.
Tensor pinv_backward(const Tensor& grad, const Tensor& inverse, const Tensor& a) {
  const Tensor g = flipped(grad), p = flipped(inverse);
  if (a.size(-2) <= a.size(-1)) {
    const Tensor k = product_of(g, inverse), kp = product_of(k, p);
    return kp - flipped(product_of(inverse, k)) - product_of(product_of(a, inverse), kp) +
           product_of(product_of(p, inverse), g - product_of(k, a));
  }
  const Tensor k = product_of(inverse, g), pk = product_of(p, k);
  return pk - flipped(product_of(k, inverse)) +
         product_of(product_of(g - product_of(a, k), inverse), p) -
         product_of(product_of(pk, inverse), a);
}

// The gradient of the residuals R = A X - B has no part through X, where it vanishes.
Tensors<2> lstsq_backward(const Tensor* grads, const Tensor& a, const Tensor& b,
                          std::optional<double> rcond, const Tensor& solution, const bool* wanted) {
  const bool vector = b.dim() == 1 || solution.dim() < std::max(a.dim(), b.dim());
  const auto as_matrix = [&](const Tensor& x) { return vector ? x.unsqueeze(-1) : x; };
  Tensor of_a, of_b;
  if (grads[0].defined()) {
    const Tensor inverse = mytorch::linalg_pinv(a, std::nullopt, rcond, false);
    const Tensor g = as_matrix(grads[0]);
    if (wanted[0]) of_a = pinv_backward(product_of(g, flipped(as_matrix(b))), inverse, a);
    if (wanted[1]) of_b = product_of(flipped(inverse), g);
  }
  if (grads[1].defined() && grads[1].numel() != 0) {
    const Tensor x = as_matrix(solution);
    const Tensor g = (product_of(a, x) - as_matrix(b)) * (2.0 * grads[1].unsqueeze(-2));
    if (wanted[0]) of_a = sum_of(of_a, product_of(g, flipped(x)));
    if (wanted[1]) of_b = sum_of(of_b, -g);
  }
  if (grads[3].defined() && grads[3].numel() != 0 && wanted[0]) {
    const auto [u, s, vh] = mytorch::linalg_svd_forward(a, false, true);
    of_a = sum_of(of_a, product_of(u * grads[3].unsqueeze(-2), vh));
  }
  Tensors<2> found;
  if (of_a.defined()) std::get<0>(found) = sum_to(of_a, a.sizes());
  if (of_b.defined()) std::get<1>(found) = sum_to(vector ? of_b.squeeze(-1) : of_b, b.sizes());
  return found;
}

// The block (1, 2) of exp((A^T, G; 0, A^T)) is the derivative of exp at A^T in the direction G
// (R. Mathias, 1996).
Tensor matrix_exp_backward(const Tensor& grad, const Tensor& a) {
  const int64_t n = a.size(-1);
  const Tensor corner = flipped(a);
  const Tensor upper = mytorch::cat({corner, grad}, -1);
  const Tensor lower = mytorch::cat({zeros_like_shape(a, a.sizes()), corner}, -1);
  const Tensor whole = mytorch::linalg_matrix_exp(mytorch::cat({upper, lower}, -2));
  return mytorch::narrow(mytorch::narrow(whole, -2, 0, n), -1, n, n);
}

}  // namespace grads
}  // namespace mytorch
