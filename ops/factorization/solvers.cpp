// Solvers, inverses, determinants, norms and other functions of matrices, by their factorizations.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>

#include "core/tensor/batched.h"
#include "core/tensor/capture_layer.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/amin.h"
#include "mytorch/ops/any.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/ceil.h"
#include "mytorch/ops/clamp_min.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/conj.h"
#include "mytorch/ops/diagonal.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/eye.h"
#include "mytorch/ops/linalg_cholesky_ex.h"
#include "mytorch/ops/linalg_eig_forward.h"
#include "mytorch/ops/linalg_eigh_forward.h"
#include "mytorch/ops/linalg_eigvalsh.h"
#include "mytorch/ops/linalg_householder_product.h"
#include "mytorch/ops/linalg_inv.h"
#include "mytorch/ops/linalg_inv_ex.h"
#include "mytorch/ops/linalg_lu_factor_ex.h"
#include "mytorch/ops/linalg_lu_permutation.h"
#include "mytorch/ops/linalg_lu_solve.h"
#include "mytorch/ops/linalg_matrix_norm.h"
#include "mytorch/ops/linalg_pinv.h"
#include "mytorch/ops/linalg_qr.h"
#include "mytorch/ops/linalg_slogdet.h"
#include "mytorch/ops/linalg_solve.h"
#include "mytorch/ops/linalg_solve_ex.h"
#include "mytorch/ops/linalg_solve_forward.h"
#include "mytorch/ops/linalg_solve_triangular.h"
#include "mytorch/ops/linalg_svd_forward.h"
#include "mytorch/ops/linalg_svdvals.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/log2.h"
#include "mytorch/ops/mH.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/movedim.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/ne.h"
#include "mytorch/ops/pow.h"
#include "mytorch/ops/prod.h"
#include "mytorch/ops/remainder.h"
#include "mytorch/ops/sgn.h"
#include "mytorch/ops/sqrt.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/ops/tril.h"
#include "mytorch/ops/triu.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "ops/check.h"
#include "ops/composites.h"
#include "ops/factorization/factorizations.h"
#include "ops/geometry.h"

namespace mytorch {

bool has_vectors(const Tensor& a, const Tensor& b) {
  if (b.dim() == 1) return true;
  return a.dim() == b.dim() + 1 && b.sizes() == as_list(geometry::leading_sizes(a, 1));
}

Tensor every_example(Tensor x) {
  while (is_batched(x.impl())) x = all_examples(x);
  return x;
}

static void check_info(const Tensor& infos, const char* op,
                       const std::function<std::string(int64_t)>& explain) {
  const Tensor info = every_example(infos);
  if (info.numel() == 0 || !mytorch::any(info).item<bool>()) return;
  const Tensor all = info.reshape({-1});
  for (int64_t i = 0; i < all.numel(); ++i) {
    const int64_t order = all.select(0, i).item().to_int();
    if (order == 0) continue;
    const std::string element = info.dim() == 0 ? "" : "(batch element " + std::to_string(i) + ") ";
    refuse(ErrorCode::kValue, op, element, explain(order));
  }
}

Tensor checked_result(const Tensor& result, const Tensor& infos, const char* op,
                      const std::function<std::string(int64_t)>& explain) {
  if (!recording_graph()) {
    check_info(infos, op, explain);
    return result;
  }
  const Tensor failed = mytorch::ne(infos, 0).unsqueeze(-1).unsqueeze(-1);
  return mytorch::where(failed, NAN, result);
}

namespace {

Tensor unit_matrix(const Tensor& like, int64_t n) {
  return mytorch::eye(n, like.dtype(), like.device());
}

// Returns `result` if the matrices, whose factorization gave `info`, are invertible.
Tensor of_invertible(const Tensor& result, const Tensor& info, const char* op, const char* what) {
  const auto explain = [&](int64_t order) {
    const std::string at = std::to_string(order - 1);
    return std::string(what) + " because the matrix is singular: U[" + at + ", " + at +
           "] of its factorization is 0. linalg_pinv and linalg_lstsq take singular matrices";
  };
  return checked_result(result, info, op, explain);
}

bool wants_gradient(const Tensor& x) { return grad_enabled() && x.requires_grad(); }

// Checks the two dimensions of matrices and wraps them.
Dims matrix_dims(const Tensor& x, IntList dim, const char* op) {
  check_shape(x.dim() >= 2, op, "self has shape ", x.sizes(), ": it must have two dimensions");
  check_shape(dim.size() == 2, op, "dim has ", static_cast<int64_t>(dim.size()),
              " numbers: give the two dimensions of the matrices");
  return geometry::wrap_dims(dim, x.dim(), op);
}

Tensor values_in(const Tensor& x, const Dims& dims) {
  const Tensor last = mytorch::movedim(x, as_list(dims), {-2, -1});
  return mytorch::linalg_svdvals(last);
}

// Puts the two dimensions of matrices back, with size 1.
Tensor with_dims(Tensor x, const Dims& dims, bool keepdim) {
  if (!keepdim) return x;
  x = x.unsqueeze(std::min(dims[0], dims[1]));
  return x.unsqueeze(std::max(dims[0], dims[1]));
}

void check_driver(std::optional<std::string_view> driver, const char* op) {
  check_value(!driver.has_value(), op,
              "driver is given: it chooses among cuSOLVER's algorithms, "
              "and no backend has them. Leave it out");
}

}  // namespace

namespace composite {

// ---- Cholesky
// ---------------------------------------------------------------------------------------

Tensor linalg_cholesky(const Tensor& self, bool upper) {
  auto [factor, info] = mytorch::linalg_cholesky_ex(self, upper);
  return checked_result(factor, info, "linalg_cholesky", [](int64_t order) {
    return "the factorization could not be completed because the input is not positive-definite "
           "(the leading minor of order " +
           std::to_string(order) + " is not positive)";
  });
}

Tensor cholesky_solve(const Tensor& self, const Tensor& input2, bool upper) {
  const Tensor& factor = input2;
  const Tensor lower = upper ? mytorch::mH(factor) : factor;
  const Tensor inner = mytorch::linalg_solve_triangular(lower, self, false);
  return mytorch::linalg_solve_triangular(mytorch::mH(lower), inner, true);
}

Tensor cholesky_inverse(const Tensor& self, bool upper) {
  check_square(self, "self", "cholesky_inverse");
  return cholesky_solve(unit_matrix(self, self.size(-1)), self, upper);
}

// ---- LU
// ---------------------------------------------------------------------------------------------

Tensors<2> linalg_lu_factor(const Tensor& a, bool pivot) {
  auto [lu, pivots, info] = mytorch::linalg_lu_factor_ex(a, pivot);
  return {of_invertible(lu, info, "linalg_lu_factor",
                        "a solve with the factorization would divide by 0"),
          std::move(pivots)};
}

Tensors<3> lu_unpack(const Tensor& data, const Tensor& pivots, bool unpack_data,
                     bool unpack_pivots) {
  check_factorizable(data, "LU_data", "lu_unpack");
  const int64_t m = data.size(-2), n = data.size(-1), k = std::min(m, n);
  Tensor p = mytorch::empty({0}, data.dtype(), data.device()), l = p, u = p;
  if (unpack_pivots) {
    const Tensor permutation = mytorch::linalg_lu_permutation(pivots, m);
    const Tensor rows = mytorch::arange(m, kInt64, data.device()).unsqueeze(-1);
    p = mytorch::eq(permutation.unsqueeze(-2), rows).to(data.dtype());
  }
  if (unpack_data) {
    const Tensor unit = mytorch::eye(m, k, data.dtype(), data.device());
    l = mytorch::tril(mytorch::narrow(data, -1, 0, k), -1) + unit;
    u = mytorch::triu(mytorch::narrow(data, -2, 0, k));
  }
  return {std::move(p), std::move(l), std::move(u)};
}

Tensors<3> linalg_lu(const Tensor& a, bool pivot) {
  const auto [lu, pivots, info] = mytorch::linalg_lu_factor_ex(a, pivot);
  return lu_unpack(lu, pivots, true, true);
}

std::vector<Tensor> lu(const Tensor& self, bool pivot, bool get_infos) {
  auto [data, pivots, info] = mytorch::linalg_lu_factor_ex(self, pivot);
  if (get_infos) return {std::move(data), std::move(pivots), std::move(info)};
  return {of_invertible(data, info, "lu", "a solve with the factorization would divide by 0"),
          std::move(pivots)};
}

Tensors<2> triangular_solve(const Tensor& self, const Tensor& a, bool upper, bool transpose,
                            bool unitriangular) {
  const Tensor matrix = transpose ? mytorch::transpose(a, -2, -1) : a;
  return {mytorch::linalg_solve_triangular(matrix, self, upper != transpose, true, unitriangular),
          mytorch::clone(a)};
}

// ---- solving
// ----------------------------------------------------------------------------------------

Tensors<4> linalg_solve_forward(const Tensor& a, const Tensor& b, bool left) {
  check_square(a, "A", "linalg_solve");
  auto [lu, pivots, info] = mytorch::linalg_lu_factor_ex(a);
  Tensor x = mytorch::linalg_lu_solve(lu, pivots, b, left);
  return {std::move(x), std::move(lu), std::move(pivots), std::move(info)};
}

static Tensors<2> solve_checked(const Tensor& a, const Tensor& b, bool left, bool check,
                                const char* op) {
  check_square(a, "A", op);
  const bool vectors = has_vectors(a, b);
  check_shape(left || !vectors, op, "B has vectors, of shape ", b.sizes(),
              ", but left is false: give matrices");
  auto [x, lu, pivots, info] =
      mytorch::linalg_solve_forward(a, vectors ? b.unsqueeze(-1) : b, left);
  if (check) x = of_invertible(x, info, op, "there is no unique solution");
  return {vectors ? x.squeeze(-1) : x, std::move(info)};
}

Tensors<2> linalg_solve_ex(const Tensor& a, const Tensor& b, bool left, bool check_errors) {
  return solve_checked(a, b, left, check_errors, "linalg_solve_ex");
}

Tensor linalg_solve(const Tensor& a, const Tensor& b, bool left) {
  return std::get<0>(solve_checked(a, b, left, true, "linalg_solve"));
}

Tensors<2> linalg_inv_ex(const Tensor& a, bool check_errors) {
  check_square(a, "A", "linalg_inv_ex");
  auto [lu, pivots, info] = mytorch::linalg_lu_factor_ex(a);
  const Tensor inverse = mytorch::linalg_lu_solve(lu, pivots, unit_matrix(a, a.size(-1)));
  return {
      check_errors ? of_invertible(inverse, info, "linalg_inv_ex", "there is no inverse") : inverse,
      std::move(info)};
}

Tensor linalg_inv(const Tensor& a) {
  check_square(a, "A", "linalg_inv");
  auto [inverse, info] = mytorch::linalg_inv_ex(a);
  return of_invertible(inverse, info, "linalg_inv", "there is no inverse");
}

// ---- determinants
// -----------------------------------------------------------------------------------

// The diagonal of U, and the sign of the permutation.
static Tensors<2> diagonal_and_sign(const Tensor& a, const char* op) {
  check_square(a, "A", op);
  const auto [lu, pivots, info] = mytorch::linalg_lu_factor_ex(a);
  const Tensor own = mytorch::arange(1, a.size(-1) + 1, 1, kInt32, a.device());
  const Tensor exchanges = mytorch::sum(mytorch::ne(pivots, own), {-1});
  const Tensor odd = mytorch::remainder(exchanges, 2).to(a.dtype());
  return {mytorch::diagonal(lu, 0, -2, -1), 1.0 - 2.0 * odd};
}

Tensor linalg_det(const Tensor& a) {
  const auto [diagonal, sign] = diagonal_and_sign(a, "linalg_det");
  return mytorch::prod(diagonal, -1) * sign;
}

Tensors<2> linalg_slogdet(const Tensor& a) {
  const auto [diagonal, sign] = diagonal_and_sign(a, "linalg_slogdet");
  return {mytorch::prod(mytorch::sgn(diagonal), -1) * sign,
          mytorch::sum(mytorch::log(mytorch::abs(diagonal)), {-1})};
}

Tensor logdet(const Tensor& self) {
  const auto [sign, logarithm] = mytorch::linalg_slogdet(self);
  if (sign.is_complex()) return mytorch::log(sign) + logarithm;
  return mytorch::where(mytorch::eq(sign, -1.0), std::numeric_limits<double>::quiet_NaN(),
                        logarithm);
}

// ---- QR, eigenvalues, singular values
// ---------------------------------------------------------------

Tensors<2> qr(const Tensor& self, bool some) {
  return mytorch::linalg_qr(self, some ? "reduced" : "complete");
}

Tensor ormqr(const Tensor& self, const Tensor& input2, const Tensor& input3, bool left,
             bool transpose) {
  check_factorizable(self, "self", "ormqr");
  const int64_t m = self.size(-2), k = input2.dim() == 0 ? 0 : input2.size(-1);
  check_shape(k <= std::min(m, self.size(-1)), "ormqr", "input2 has ", k,
              " factors, but self, of shape ", self.sizes(), ", fewer rows or columns");
  Dims sizes = to_dims(self.sizes());
  sizes.back() = m - k;
  const Tensor vectors = mytorch::cat({mytorch::narrow(self, -1, 0, k),
                                       mytorch::zeros(as_list(sizes), self.dtype(), self.device())},
                                      -1);
  const Tensor whole = mytorch::linalg_householder_product(vectors, input2);
  const Tensor q = transpose ? mytorch::mH(whole) : whole;
  return left ? mytorch::matmul(q, input3) : mytorch::matmul(input3, q);
}

Tensors<2> linalg_eigh(const Tensor& self, Str uplo) {
  return mytorch::linalg_eigh_forward(self, uplo, true);
}

Tensor linalg_eigvalsh(const Tensor& self, Str uplo) {
  return std::get<0>(mytorch::linalg_eigh_forward(self, uplo, wants_gradient(self)));
}

Tensors<2> linalg_eig(const Tensor& self) { return mytorch::linalg_eig_forward(self, true); }

Tensor linalg_eigvals(const Tensor& self) {
  return std::get<0>(mytorch::linalg_eig_forward(self, wants_gradient(self)));
}

Tensors<3> linalg_svd(const Tensor& a, bool full_matrices, std::optional<std::string_view> driver) {
  check_driver(driver, "linalg_svd");
  return mytorch::linalg_svd_forward(a, full_matrices, true);
}

Tensor linalg_svdvals(const Tensor& a, std::optional<std::string_view> driver) {
  check_driver(driver, "linalg_svdvals");
  return std::get<1>(mytorch::linalg_svd_forward(a, false, wants_gradient(a)));
}

Tensors<3> svd(const Tensor& self, bool some, bool compute_uv) {
  check_factorizable(self, "self", "svd");
  if (compute_uv) {
    auto [u, s, vh] = mytorch::linalg_svd_forward(self, !some, true);
    return {std::move(u), std::move(s), mytorch::mH(vh)};
  }
  const auto square = [&](int64_t n) {
    Dims sizes = geometry::leading_sizes(self, 2);
    sizes.push_back(n);
    sizes.push_back(n);
    return mytorch::zeros(as_list(sizes), self.dtype(), self.device());
  };
  return {square(self.size(-2)), mytorch::linalg_svdvals(self), square(self.size(-1))};
}

// ---- norms
// ------------------------------------------------------------------------------------------

// The largest or the smallest of norms. They are not negative, so the largest of none is 0, which
// is their sum; the smallest of none does not exist.
static Tensor extreme_norm(const Tensor& norms, double order, int64_t dim, bool keepdim,
                           const Tensor& self, const char* op) {
  if (norms.size(dim) != 0) {
    return order > 0 ? norms.amax({dim}, keepdim) : norms.amin({dim}, keepdim);
  }
  check_shape(order > 0, op, "self has shape ", self.sizes(), ", and order ", order,
              " is the smallest of no ",
              std::abs(order) == 1 ? "column norms"
              : std::isinf(order)  ? "row norms"
                                   : "singular values");
  return norms.sum({dim}, keepdim);
}

Tensor linalg_matrix_norm(const Tensor& self, const Scalar& ord, IntList dim, bool keepdim,
                          std::optional<ScalarType> dtype) {
  const char* op = "linalg_matrix_norm";
  const double order = ord.to<double>();
  const double size = std::abs(order);
  check_value(size == 1 || size == 2 || std::isinf(order), op, "ord is ", order,
              ": it must be 1, -1, 2, -2, inf, -inf, 'fro' or 'nuc'");
  const Dims dims = matrix_dims(self, dim, op);
  const Tensor x = dtype.has_value() ? self.to(*dtype) : self;
  check_type(is_differentiable(x.dtype()), op, "self is ", x.dtype(),
             ": it must be of a floating or complex type");
  if (size == 2) {
    return with_dims(extreme_norm(values_in(x, dims), order, -1, false, self, op), dims, keepdim);
  }
  // Order 1 sums columns, so it sums over the rows' dimension; inf sums rows.
  const int64_t summed = std::isinf(order) ? dims[1] : dims[0];
  const int64_t compared = std::isinf(order) ? dims[0] : dims[1];
  const Tensor sums = mytorch::linalg_vector_norm(x, 1, {summed}, true);
  const Tensor norm = extreme_norm(sums, order, compared, true, self, op);
  return keepdim ? norm : norm.squeeze(as_list(dims));
}

Tensor linalg_matrix_norm(const Tensor& self, Str ord, IntList dim, bool keepdim,
                          std::optional<ScalarType> dtype) {
  const char* op = "linalg_matrix_norm";
  check_value(ord == "fro" || ord == "nuc", op, "ord is '", ord,
              "': it must be 'fro', 'nuc', or one of the numbers 1, -1, 2, -2, inf and -inf");
  const Dims dims = matrix_dims(self, dim, op);
  const Tensor x = dtype.has_value() ? self.to(*dtype) : self;
  check_type(is_differentiable(x.dtype()), op, "self is ", x.dtype(),
             ": it must be of a floating or complex type");
  if (ord == "fro") return mytorch::linalg_vector_norm(x, 2, as_list(dims), keepdim);
  return with_dims(mytorch::sum(values_in(x, dims), {-1}), dims, keepdim);
}

Tensor linalg_norm(const Tensor& self, Str ord, OptionalIntList dim, bool keepdim,
                   std::optional<ScalarType> dtype) {
  check_shape(dim.has_value() || self.dim() == 2, "linalg_norm", "self has shape ", self.sizes(),
              ", and the order '", ord, "' is of matrices: give their two dimensions as dim");
  return mytorch::linalg_matrix_norm(self, ord, dim.has_value() ? *dim : IntList({-2, -1}), keepdim,
                                     dtype);
}

// The norm of the inverse is infinite where there is none.
template <class Order>
static Tensor condition(const Tensor& self, Order order) {
  check_square(self, "self", "linalg_cond");
  const auto [inverse, info] = mytorch::linalg_inv_ex(self);
  const Tensor product =
      mytorch::linalg_matrix_norm(self, order) * mytorch::linalg_matrix_norm(inverse, order);
  return mytorch::where(mytorch::ne(info, 0), std::numeric_limits<double>::infinity(), product);
}

Tensor linalg_cond(const Tensor& self, std::optional<Scalar> p) {
  const double order = p.has_value() ? p->to<double>() : 2, size = std::abs(order);
  check_factorizable(self, "self", "linalg_cond");
  // As in PyTorch, that of an empty matrix is 0, as its norms are.
  if (self.size(-2) == 0 || self.size(-1) == 0) return mytorch::linalg_matrix_norm(self, size);
  if (size != 2) return condition(self, Scalar(order));
  const Tensor values = mytorch::linalg_svdvals(self);
  const Tensor largest = values.select(-1, 0), smallest = values.select(-1, values.size(-1) - 1);
  return order > 0 ? largest / smallest : smallest / largest;
}

Tensor linalg_cond(const Tensor& self, Str p) { return condition(self, p); }

// ---- functions of matrices
// --------------------------------------------------------------------------

// The Taylor polynomial of degree 16 of A / 2^s, squared s times. With norms up to `radius` its
// error is below the type's rounding: radius^17 / 17! is 6e-17 and 2e-8.
Tensor linalg_matrix_sqrth(const Tensor& a) {
  check_square(a, "A", "linalg_matrix_sqrth");
  const auto [values, vectors] = mytorch::linalg_eigh_forward(a, "L", true);
  return mytorch::matmul(vectors * mytorch::sqrt(values).unsqueeze(-2), mytorch::mH(vectors));
}

Tensor linalg_matrix_exp(const Tensor& self) {
  check_square(self, "self", "linalg_matrix_exp");
  if (every_example(self).numel() == 0) return mytorch::clone(self);
  const double radius = to_real(self.dtype()) == kFloat64 ? 0.8 : 2.5;
  const Tensor norm = mytorch::amax(mytorch::sum(mytorch::abs(self), {-2}), {-1});
  const Tensor squarings = mytorch::clamp_min(mytorch::ceil(mytorch::log2(norm / radius)), 0.0);
  const double most = mytorch::amax(every_example(squarings)).item<double>();
  const auto by_matrix = [](const Tensor& x) { return x.unsqueeze(-1).unsqueeze(-1); };
  const Tensor a = std::isfinite(most) ? self * by_matrix(mytorch::pow(2.0, -squarings)) : self;
  const Tensor one = unit_matrix(self, self.size(-1));
  const Tensor a2 = mytorch::matmul(a, a), a3 = mytorch::matmul(a2, a),
               a4 = mytorch::matmul(a2, a2);
  double factor[17] = {1};
  for (int i = 1; i <= 16; ++i) factor[i] = factor[i - 1] / i;
  Tensor result = a4 * factor[16];
  for (int i = 12; i >= 0; i -= 4) {
    const Tensor part =
        one * factor[i] + a * factor[i + 1] + a2 * factor[i + 2] + a3 * factor[i + 3];
    result = i == 12 ? result + part : mytorch::matmul(a4, result) + part;
  }
  for (int i = 0; std::isfinite(most) && i < most; ++i) {
    const Tensor square = mytorch::matmul(result, result);
    result = mytorch::where(by_matrix(squarings) > i, square, result);
  }
  return result;
}

Tensor linalg_tensorinv(const Tensor& self, int64_t ind) {
  const char* op = "linalg_tensorinv";
  check_value(ind > 0 && ind <= self.dim(), op, "ind is ", ind, ": it must be in 1 ... ",
              self.dim());
  const Dims sizes = to_dims(self.sizes());
  Dims first(sizes.begin(), sizes.begin() + ind), last(sizes.begin() + ind, sizes.end());
  const int64_t rows = checked_product(as_list(first), op);
  const int64_t columns = checked_product(as_list(last), op);
  check_shape(rows == columns, op, "self has shape ", self.sizes(), ": its first ", ind,
              " dimensions have ", rows, " elements and the others ", columns);
  last.insert(last.end(), first.begin(), first.end());
  return mytorch::linalg_inv(self.reshape({rows, columns})).reshape(as_list(last));
}

Tensor linalg_tensorsolve(const Tensor& self, const Tensor& other, OptionalIntList dims) {
  const char* op = "linalg_tensorsolve";
  Tensor a = self;
  if (dims.has_value()) {
    Dims order = geometry::wrap_dims(*dims, self.dim(), op), all;
    for (int64_t d = 0; d < self.dim(); ++d) {
      if (std::find(order.begin(), order.end(), d) == order.end()) all.push_back(d);
    }
    all.insert(all.end(), order.begin(), order.end());
    a = self.permute(as_list(all));
  }
  check_shape(other.dim() <= a.dim(), op, "self has shape ", self.sizes(), " and other ",
              other.sizes(), ": self must have at least as many dimensions");
  const Dims result(a.sizes().begin() + other.dim(), a.sizes().end());
  const int64_t unknowns = checked_product(as_list(result), op);
  check_shape(unknowns == other.numel() && a.numel() == unknowns * unknowns, op, "self has shape ",
              self.sizes(), " and other ", other.sizes(),
              ": self must have the shape of other and then dimensions of as many elements");
  return mytorch::linalg_solve(a.reshape({unknowns, unknowns}), other.reshape({-1}))
      .reshape(as_list(result));
}

}  // namespace composite
}  // namespace mytorch
