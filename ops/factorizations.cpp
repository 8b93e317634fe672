// Factorizations of matrices and triangular solvers: the geometry of their results, and gradients.
#include "ops/factorizations.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "core/tensor/batched.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/argsort.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/conj.h"
#include "mytorch/ops/cumsum.h"
#include "mytorch/ops/diag_embed.h"
#include "mytorch/ops/diagonal.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/eye.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/imag.h"
#include "mytorch/ops/linalg_eig_forward.h"
#include "mytorch/ops/linalg_eigh_forward.h"
#include "mytorch/ops/linalg_lu_permutation.h"
#include "mytorch/ops/linalg_lu_solve.h"
#include "mytorch/ops/linalg_matrix_exp.h"
#include "mytorch/ops/linalg_pinv.h"
#include "mytorch/ops/linalg_slogdet.h"
#include "mytorch/ops/linalg_solve_forward.h"
#include "mytorch/ops/linalg_solve_triangular.h"
#include "mytorch/ops/linalg_svd_forward.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/logical_or.h"
#include "mytorch/ops/mH.h"
#include "mytorch/ops/masked_fill.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/real.h"
#include "mytorch/ops/sqrt.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/ops/tril.h"
#include "mytorch/ops/triu.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/check.h"
#include "ops/geometry.h"
#include "ops/gradients.h"

namespace mytorch {

void check_factorizable(const Tensor& x, const char* name, const char* op) {
  const ScalarType real = to_real(x.dtype());
  check_type(real == kFloat32 || real == kFloat64, op, name, " is ", x.dtype(),
             ": matrices are factorized in float32, float64, complex64 and complex128, convert it");
  check_shape(x.dim() >= 2, op, name, " has shape ", x.sizes(),
              ": it must be a matrix, or a batch ", "of matrices (..., m, n)");
}

void check_square(const Tensor& x, const char* name, const char* op) {
  check_factorizable(x, name, op);
  check_shape(x.size(-1) == x.size(-2), op, name, " has shape ", x.sizes(),
              ": its last two dimensions must be equal");
}

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

namespace {

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

void check_pivots(const Tensor& pivots, const char* op) {
  check_type(pivots.dtype() == kInt32, op, "pivots is ", pivots.dtype(), ": it must be int32");
}

}  // namespace

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

Specs<2> linalg_qr(const Tensor& a, Str mode) {
  const char* op = "linalg_qr";
  check_value(mode == "reduced" || mode == "complete" || mode == "r", op, "mode is '", mode,
              "': it must be reduced, complete or r");
  check_factorizable(a, "A", op);
  const int64_t m = a.size(-2), columns = mode == "complete" ? m : smaller_side(a);
  return {mode == "r" ? like(a, {0}) : in_columns(a, with_matrix(batch_of(a), m, columns)),
          in_columns(a, with_matrix(batch_of(a), columns, a.size(-1)))};
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
  return {like(self, with_vector(batch_of(self), self.size(-1)), to_real(self.dtype())),
          compute_v ? in_columns(self, to_dims(self.sizes())) : like(self, {0})};
}

Specs<2> linalg_eig_forward(const Tensor& self, bool compute_v) {
  check_square(self, "self", "linalg_eig");
  const ScalarType type = to_complex(self.dtype());
  TensorSpec vectors = compute_v ? in_columns(self, to_dims(self.sizes())) : like(self, {0});
  vectors.dtype = type;
  return {like(self, with_vector(batch_of(self), self.size(-1)), type), std::move(vectors)};
}

Specs<3> linalg_svd_forward(const Tensor& self, bool full_matrices, bool compute_uv) {
  check_factorizable(self, "A", "linalg_svd");
  const int64_t m = self.size(-2), n = self.size(-1), k = std::min(m, n);
  const Dims batch = batch_of(self);
  TensorSpec values = like(self, with_vector(batch, k), to_real(self.dtype()));
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
  const Tensor magnitude = mytorch::abs(det.detach());
  const double least = to_real(a.dtype()) == kFloat64 ? 1e-8 : 3e-4;
  const Tensor singular = mytorch::logical_or(mytorch::eq(magnitude, 0),
                                              magnitude < size_of(a) * size_of(cofactors) * least);
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

// G. H. Golub, V. Pereyra, The differentiation of pseudo-inverses, 1973, for constant rank.
static Tensor pinv_gradient(const Tensor& grad, const Tensor& inverse, const Tensor& a) {
  const Tensor g = mytorch::mH(grad), p = mytorch::mH(inverse);
  if (a.size(-2) <= a.size(-1)) {
    const Tensor k = product_of(g, inverse), kp = product_of(k, p);
    return kp - mytorch::mH(product_of(inverse, k)) - product_of(product_of(a, inverse), kp) +
           product_of(product_of(p, inverse), g - product_of(k, a));
  }
  const Tensor k = product_of(inverse, g), pk = product_of(p, k);
  return pk - mytorch::mH(product_of(k, inverse)) +
         product_of(product_of(g - product_of(a, k), inverse), p) -
         product_of(product_of(pk, inverse), a);
}

Tensor pinv_backward(const Tensor& grad, const Tensor& inverse, const Tensor& a, bool hermitian) {
  const Tensor result = sum_to(pinv_gradient(grad, inverse, a), a.sizes());
  return hermitian ? (result + mytorch::mH(result)) * 0.5 : result;
}

// The gradient of the residuals R = A X - B has no part through X, where it vanishes.
Tensors<2> lstsq_backward(const Tensor* grads, const Tensor& a, const Tensor& b,
                          std::optional<double> rcond, const Tensor& solution, const bool* wanted) {
  const bool vector = b.dim() == 1 || solution.dim() < std::max(a.dim(), b.dim());
  const auto as_matrix = [&](const Tensor& x) { return vector ? x.unsqueeze(-1) : x; };
  Tensor of_a, of_b;
  // The singular values belong to the matrices of `a`, the other results to a common batch.
  const auto add_to_a = [&](const Tensor& part) { of_a = sum_of(of_a, sum_to(part, a.sizes())); };
  if (grads[0].defined()) {
    const Tensor inverse = mytorch::linalg_pinv(a, std::nullopt, rcond, false);
    const Tensor g = as_matrix(grads[0]);
    if (wanted[0]) add_to_a(pinv_gradient(product_of(g, mytorch::mH(as_matrix(b))), inverse, a));
    if (wanted[1]) of_b = product_of(mytorch::mH(inverse), g);
  }
  if (grads[1].defined() && grads[1].numel() != 0) {
    const Tensor x = as_matrix(solution);
    const Tensor g = (product_of(a, x) - as_matrix(b)) * (2.0 * grads[1].unsqueeze(-2));
    if (wanted[0]) add_to_a(product_of(g, mytorch::mH(x)));
    if (wanted[1]) of_b = sum_of(of_b, -g);
  }
  if (grads[3].defined() && grads[3].numel() != 0 && wanted[0]) {
    const auto [u, s, vh] = mytorch::linalg_svd_forward(a, false, true);
    add_to_a(product_of(u * grads[3].unsqueeze(-2), vh));
  }
  Tensors<2> found;
  std::get<0>(found) = of_a;
  if (of_b.defined()) std::get<1>(found) = sum_to(vector ? of_b.squeeze(-1) : of_b, b.sizes());
  return found;
}

// The block (1, 2) of exp((A^H, G; 0, A^H)) is the derivative of exp at A^H in the direction G
// (R. Mathias, 1996).
Tensor matrix_exp_backward(const Tensor& grad, const Tensor& a) {
  const int64_t n = a.size(-1);
  const Tensor corner = mytorch::mH(a);
  const Tensor upper = mytorch::cat({corner, grad}, -1);
  const Tensor lower = mytorch::cat({zeros_like_shape(a, a.sizes()), corner}, -1);
  const Tensor whole = mytorch::linalg_matrix_exp(mytorch::cat({upper, lower}, -2));
  return mytorch::narrow(mytorch::narrow(whole, -2, 0, n), -1, n, n);
}

// X dX + dX X = dA, in the eigenvectors of A.
Tensor matrix_sqrth_backward(const Tensor& grad, const Tensor& a) {
  const auto [values, v] = mytorch::linalg_eigh_forward(a, "L", true);
  const Tensor roots = mytorch::sqrt(values);
  const Tensor inner =
      product_of(product_of(mytorch::mH(v), grad), v) / (roots.unsqueeze(-2) + roots.unsqueeze(-1));
  return product_of(product_of(v, (inner + mytorch::mH(inner)) * 0.5), mytorch::mH(v));
}

}  // namespace grads
}  // namespace mytorch
