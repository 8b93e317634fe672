// Differences and integrals along a dimension.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/logical_xor.h"
#include "ops/check.h"
#include "ops/geometry.h"

namespace mytorch::composite {
namespace {

// Returns the products of the widths `dx` with the means of neighbors along a dimension.
template <class Width>
Tensor areas(const Tensor& y, const Width& dx, int64_t dim) {
  const int64_t n = y.size(dim);
  return (y.narrow(dim, 1, n - 1) + y.narrow(dim, 0, n - 1)) * dx * 0.5;
}

int64_t integral_dim(const Tensor& y, int64_t dim, const char* op) {
  check_shape(y.dim() != 0, op, "a 0-dim tensor has no points");
  check_type(y.dtype() != kBool, op, "y is bool: convert it to a number type");
  return wrap_dim(dim, y.dim(), op);
}

// Returns the distances of the points `x`, as a tensor that broadcasts with the areas of y.
Tensor widths(const Tensor& y, const Tensor& x, int64_t dim, const char* op) {
  check_shape(x.dim() != 0, op, "x is 0-dim: give the points of dimension ", dim);
  if (x.dim() == 1) {
    check_shape(x.size(0) == y.size(dim), op, "x has ", x.size(0), " points, but dimension ", dim,
                " of y, ", y.sizes(), ", has ", y.size(dim));
    Dims sizes(y.dim() - dim, 1);
    sizes[0] = -1;
    const Tensor d = x.narrow(0, 1, x.size(0) - 1) - x.narrow(0, 0, x.size(0) - 1);
    return d.reshape(as_list(sizes));
  }
  check_shape(x.dim() == y.dim() && x.size(dim) == y.size(dim), op, "x, ", x.sizes(),
              ", does not have the points of dimension ", dim, " of y, ", y.sizes());
  const int64_t n = x.size(dim);
  return x.narrow(dim, 1, n - 1) - x.narrow(dim, 0, n - 1);
}

// Returns the areas, or zero of them if there are fewer than two points.
Tensor areas_x(const Tensor& y, const Tensor& x, int64_t dim, const char* op) {
  if (y.size(dim) == 0) return y * 0.5;
  return areas(y, widths(y, x, dim, op), dim);
}
Tensor areas_dx(const Tensor& y, const Scalar& dx, int64_t dim) {
  return y.size(dim) == 0 ? y * 0.5 : areas(y, dx, dim);
}

}  // namespace

Tensor diff(const Tensor& self, int64_t n, int64_t dim, const Tensor& prepend,
            const Tensor& append) {
  const char* op = "diff";
  check_shape(self.dim() != 0, op, "a 0-dim tensor has no neighbors");
  check_value(n >= 0, op, "n is ", n, ": it must not be negative");
  dim = wrap_dim(dim, self.dim(), op);
  if (n == 0) return self.clone();
  Tensor x = self;
  if (prepend.defined() || append.defined()) {
    std::vector<Tensor> parts;
    if (prepend.defined()) parts.push_back(prepend);
    parts.push_back(self);
    if (append.defined()) parts.push_back(append);
    x = mytorch::cat(parts, dim);
  }
  for (int64_t i = 0; i < n && x.size(dim) > 0; ++i) {
    const int64_t size = x.size(dim);
    const Tensor next = x.narrow(dim, 1, size - 1), last = x.narrow(dim, 0, size - 1);
    x = x.dtype() == kBool ? mytorch::logical_xor(next, last) : next - last;
  }
  return x.is_same(self) ? self.clone() : x;
}

Tensor trapezoid_x(const Tensor& y, const Tensor& x, int64_t dim) {
  dim = integral_dim(y, dim, "trapezoid");
  return areas_x(y, x, dim, "trapezoid").sum(dim);
}

Tensor trapezoid_dx(const Tensor& y, const Scalar& dx, int64_t dim) {
  dim = integral_dim(y, dim, "trapezoid");
  return areas_dx(y, dx, dim).sum(dim);
}

Tensor cumulative_trapezoid_x(const Tensor& y, const Tensor& x, int64_t dim) {
  dim = integral_dim(y, dim, "cumulative_trapezoid");
  return areas_x(y, x, dim, "cumulative_trapezoid").cumsum(dim);
}

Tensor cumulative_trapezoid_dx(const Tensor& y, const Scalar& dx, int64_t dim) {
  dim = integral_dim(y, dim, "cumulative_trapezoid");
  return areas_dx(y, dx, dim).cumsum(dim);
}

}  // namespace mytorch::composite
