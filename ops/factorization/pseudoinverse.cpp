// Pseudoinverses, ranks and least squares, by singular values of which small ones count as 0; and
// the largest singular values, by a random projection.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/any.h"
#include "mytorch/ops/clamp_min.h"
#include "mytorch/ops/conj.h"
#include "mytorch/ops/cumsum.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/linalg_eigh_forward.h"
#include "mytorch/ops/linalg_eigvalsh.h"
#include "mytorch/ops/linalg_matrix_rank.h"
#include "mytorch/ops/linalg_pinv.h"
#include "mytorch/ops/linalg_qr.h"
#include "mytorch/ops/linalg_solve_triangular.h"
#include "mytorch/ops/linalg_svd_forward.h"
#include "mytorch/ops/linalg_svdvals.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/mH.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/maximum.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/ne.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/sgn.h"
#include "mytorch/ops/square.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/svd_lowrank.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/check.h"
#include "ops/composites.h"
#include "ops/factorization/factorizations.h"
#include "ops/geometry.h"

namespace mytorch {
namespace {

double default_tolerance(const Tensor& x) {
  const double rounding = to_real(x.dtype()) == kFloat64 ? 0x1p-52 : 0x1p-23;
  return rounding * static_cast<double>(std::max(x.size(-2), x.size(-1)));
}

// Returns which of the magnitudes (..., k) count as more than 0.
Tensor above_tolerance(const Tensor& magnitudes, const Tensor& of, std::optional<double> atol,
                       std::optional<double> rtol) {
  const double relative = rtol.value_or(atol.value_or(0) > 0 ? 0.0 : default_tolerance(of));
  const Tensor largest = mytorch::amax(magnitudes, {-1}, true);
  return magnitudes > mytorch::clamp_min(largest * relative, atol.value_or(0));
}

// Tolerances are those of each matrix, without the last dimension of the magnitudes.
Tensor above_tolerance(const Tensor& magnitudes, const Tensor& of, const Tensor& atol,
                       const Tensor& rtol) {
  const auto as_column = [&](const Tensor& x) { return x.to(magnitudes.dtype()).unsqueeze(-1); };
  const Tensor absolute =
      atol.defined() ? as_column(atol) : mytorch::zeros({1}, magnitudes.dtype(), of.device());
  const Tensor relative =
      rtol.defined() ? as_column(rtol) : mytorch::where(absolute > 0, 0.0, default_tolerance(of));
  const Tensor largest = mytorch::amax(magnitudes, {-1}, true);
  return magnitudes > mytorch::maximum(absolute, largest * relative.to(magnitudes.dtype()));
}

void check_tolerance(const Tensor& x, const char* name, const char* op) {
  check_type(!x.defined() || !x.is_complex(), op, name, " is ", x.defined() ? x.dtype() : kFloat32,
             ": it must be real");
}

template <class Tolerance>
Tensor pseudoinverse(const Tensor& self, const Tolerance& atol, const Tolerance& rtol,
                     bool hermitian) {
  const char* op = "linalg_pinv";
  if (hermitian) check_square(self, "self", op);
  check_factorizable(self, "self", op);
  if (self.numel() == 0) {
    Dims sizes = to_dims(self.sizes());
    std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
    return mytorch::zeros(as_list(sizes), self.dtype(), self.device());
  }
  if (hermitian) {
    const auto [values, vectors] = mytorch::linalg_eigh_forward(self, "L", true);
    const Tensor kept = above_tolerance(mytorch::abs(values), self, atol, rtol);
    const Tensor inverses = mytorch::where(kept, 1.0 / values, 0.0);
    return mytorch::matmul(vectors * inverses.unsqueeze(-2), mytorch::mH(vectors));
  }
  const auto [u, s, vh] = mytorch::linalg_svd_forward(self, false, true);
  const Tensor inverses = mytorch::where(above_tolerance(s, self, atol, rtol), 1.0 / s, 0.0);
  return mytorch::matmul(mytorch::mH(vh) * inverses.unsqueeze(-2), mytorch::mH(u));
}

template <class Tolerance>
Tensor rank_of(const Tensor& self, const Tolerance& atol, const Tolerance& rtol, bool hermitian) {
  const char* op = "linalg_matrix_rank";
  check_factorizable(self, "self", op);
  if (self.numel() == 0) {
    const Dims sizes = geometry::leading_sizes(self, 2);
    return mytorch::zeros(as_list(sizes), kInt64, self.device());
  }
  const Tensor s =
      hermitian ? mytorch::abs(mytorch::linalg_eigvalsh(self)) : mytorch::linalg_svdvals(self);
  return mytorch::sum(above_tolerance(s, self, atol, rtol), {-1});
}

}  // namespace

namespace composite {

// ---- pseudoinverse, rank, least squares
// -------------------------------------------------------------

Tensor linalg_pinv(const Tensor& self, std::optional<double> atol, std::optional<double> rtol,
                   bool hermitian) {
  return pseudoinverse(self, atol, rtol, hermitian);
}

Tensor linalg_pinv(const Tensor& self, const Tensor& atol, const Tensor& rtol, bool hermitian) {
  check_tolerance(atol, "atol", "linalg_pinv");
  check_tolerance(rtol, "rtol", "linalg_pinv");
  return pseudoinverse(self, atol, rtol, hermitian);
}

Tensor linalg_pinv(const Tensor& self, const Tensor& rcond, bool hermitian) {
  check_tolerance(rcond, "rcond", "linalg_pinv");
  return mytorch::linalg_pinv(self, Tensor(), rcond, hermitian);
}

Tensor linalg_matrix_rank(const Tensor& self, std::optional<double> atol,
                          std::optional<double> rtol, bool hermitian) {
  return rank_of(self, atol, rtol, hermitian);
}

Tensor linalg_matrix_rank(const Tensor& input, const Tensor& atol, const Tensor& rtol,
                          bool hermitian) {
  check_tolerance(atol, "atol", "linalg_matrix_rank");
  check_tolerance(rtol, "rtol", "linalg_matrix_rank");
  return rank_of(input, atol, rtol, hermitian);
}

Tensor linalg_matrix_rank(const Tensor& input, const Tensor& tol, bool hermitian) {
  return mytorch::linalg_matrix_rank(input, tol, mytorch::zeros_like(tol), hermitian);
}

Tensors<4> linalg_lstsq(const Tensor& self, const Tensor& b, std::optional<double> rcond,
                        std::optional<std::string_view> driver) {
  const char* op = "linalg_lstsq";
  const Str way = driver.value_or("gelsy");
  check_value(way == "gelsy" || way == "gels" || way == "gelsd" || way == "gelss", op,
              "driver is '", way, "': it must be gelsy, gels, gelsd or gelss");
  check_factorizable(self, "self", op);
  check_same_type(self, "self", b, "b", op);
  const bool vectors = has_vectors(self, b);
  const Tensor right = vectors ? b.unsqueeze(-1) : b;
  const int64_t m = self.size(-2), n = self.size(-1);
  check_shape(right.dim() >= 2 && right.size(-2) == m, op, "self has shape ", self.sizes(),
              " and b ", b.sizes(), ": both must have the same number of rows");
  Tensor x, rank = mytorch::empty({0}, kInt64, self.device());
  Tensor values = mytorch::empty({0}, to_real(self.dtype()), self.device());
  Tensor residuals = mytorch::empty({0}, to_real(self.dtype()), self.device());
  bool full = true;
  if (way == "gels") {
    const auto [q, r] = mytorch::linalg_qr(m >= n ? self : mytorch::mH(self), "reduced");
    x = m >= n ? mytorch::linalg_solve_triangular(r, mytorch::matmul(mytorch::mH(q), right), true)
               : mytorch::matmul(q, mytorch::linalg_solve_triangular(mytorch::mH(r), right, false));
  } else {
    const auto [u, s, vh] = mytorch::linalg_svd_forward(self, false, true);
    if (self.numel() == 0) {
      const Dims sizes = geometry::leading_sizes(self, 2);
      rank = mytorch::zeros(as_list(sizes), kInt64, self.device());
      x = mytorch::matmul(mytorch::linalg_pinv(self, std::nullopt, rcond, false), right);
    } else {
      const Tensor kept = above_tolerance(s, self, std::nullopt, rcond);
      rank = mytorch::sum(kept, {-1});
      const Tensor inner =
          mytorch::where(kept, 1.0 / s, 0.0).unsqueeze(-1) * mytorch::matmul(mytorch::mH(u), right);
      x = mytorch::matmul(mytorch::mH(vh), inner);
    }
    if (way != "gelsy") values = s;
    full = !mytorch::any(every_example(mytorch::ne(rank, std::min(m, n)))).item<bool>();
  }
  if (m > n && full && way != "gelsy") {
    const Tensor difference = mytorch::matmul(self, x) - right;
    residuals = mytorch::sum(mytorch::square(mytorch::abs(difference)), {-2});
  }
  return {vectors ? x.squeeze(-1) : x, std::move(residuals), std::move(rank), std::move(values)};
}

// ---- the largest singular values
// ---------------------------------------------------------------

// Multiplies each column of `u` and `v` by the factor that makes it unique (sdk::unique_factor).
static void make_unique(Tensor& u, Tensor& v) {
  if (u.numel() == 0) return;
  const Tensor size = mytorch::abs(u);
  const Tensor near = size >= mytorch::amax(size, {-2}, true) * 0.9;
  const Tensor first = near.logical_and(mytorch::cumsum(near, -2) == 1);
  const Tensor factors =
      mytorch::sum(mytorch::where(first, mytorch::sgn(mytorch::conj(u)), 0.0), {-2}, true);
  u = u * factors;
  v = v * factors;
}

// N. Halko, P. Martinsson, J. Tropp, Finding structure with randomness, 2009, algorithms 4.4
// and 5.1.
Tensors<3> svd_lowrank(const Tensor& a, std::optional<int64_t> q, int64_t niter, const Tensor& m,
                       std::optional<Generator> generator) {
  const char* op = "svd_lowrank";
  check_factorizable(a, "A", op);
  const int64_t wanted = q.value_or(6);
  check_value(wanted >= 0, op, "q is ", wanted, ": it must not be negative");
  constexpr int64_t kMostIterations = 1000;
  check_value(niter >= 0 && niter <= kMostIterations, op, "niter is ", niter,
              ": give a number of power iterations from 0 to ", kMostIterations,
              ", of which a few suffice");
  const Tensor given = m.defined() ? mytorch::sub(a, m) : a;
  const bool wide = given.size(-2) < given.size(-1);
  const Tensor x = wide ? mytorch::mH(given) : given, xh = wide ? given : mytorch::mH(given);
  const int64_t n = x.size(-1);
  const Tensor start =
      mytorch::randn({n, std::min(wanted, n)}, x.dtype(), x.device(), std::move(generator));
  const auto basis = [](const Tensor& of) { return std::get<0>(mytorch::linalg_qr(of)); };
  Tensor space = basis(mytorch::matmul(x, start));
  for (int64_t i = 0; i < niter; ++i) {
    space = basis(mytorch::matmul(x, basis(mytorch::matmul(xh, space))));
  }
  auto [inner, s, vh] =
      mytorch::linalg_svd_forward(mytorch::matmul(mytorch::mH(space), x), false, true);
  Tensor u = mytorch::matmul(space, inner), v = mytorch::mH(vh);
  if (wide) std::swap(u, v);
  make_unique(u, v);
  return {std::move(u), std::move(s), std::move(v)};
}

Tensors<3> pca_lowrank(const Tensor& a, std::optional<int64_t> q, bool center, int64_t niter,
                       std::optional<Generator> generator) {
  const char* op = "pca_lowrank";
  check_factorizable(a, "A", op);
  const int64_t most = std::min(a.size(-2), a.size(-1));
  const int64_t wanted = q.value_or(std::min<int64_t>(6, most));
  check_value(wanted >= 0 && wanted <= most, op, "q is ", wanted,
              ": it must be at least 0 and, for shape ", a.sizes(), ", at most ", most);
  const Tensor x = center ? mytorch::sub(a, mytorch::mean(a, {-2}, true)) : a;
  return mytorch::svd_lowrank(x, wanted, niter, Tensor(), std::move(generator));
}

}  // namespace composite
}  // namespace mytorch
