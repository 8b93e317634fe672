// Factorizations of matrices and triangular solvers: checks, and the geometry of their results.
#include "ops/factorization/factorizations.h"

#include <algorithm>
#include <utility>

#include "mytorch/generated/bodies.h"
#include "ops/check.h"
#include "ops/geometry.h"

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

Dims batch_of(const Tensor& x) { return geometry::leading_sizes(x, 2); }

Dims with_matrix(Dims batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
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

namespace {

Dims with_vector(Dims batch, int64_t size) {
  batch.push_back(size);
  return batch;
}

int64_t smaller_side(const Tensor& x) { return std::min(x.size(-2), x.size(-1)); }

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
}  // namespace mytorch
