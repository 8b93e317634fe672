// Norms of slices, bounded.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/where.h"
#include "ops/check.h"
#include "ops/geometry.h"

namespace mytorch::composite {

Tensor renorm(const Tensor& self, const Scalar& p, int64_t dim, const Scalar& maxnorm) {
  const char* op = "renorm";
  check_shape(self.dim() >= 2, op, "shape ", self.sizes(), " has fewer than two dimensions");
  check_floating(self, "self", op);
  const double limit = maxnorm.to<double>();
  check_value(p.to<double>() > 0 && limit >= 0, op, "p is ", p.to<double>(), " and maxnorm ", limit,
              ": p must be positive, and maxnorm must not be negative");
  const Dims others = geometry::all_dims_but(wrap_dim(dim, self.dim(), op), self.dim());
  const Tensor norm = mytorch::linalg_vector_norm(self, p, as_list(others), true);
  return self * mytorch::where(norm > limit, limit / (norm + 1e-7), 1.0);
}

}  // namespace mytorch::composite
