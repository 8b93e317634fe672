// Differences and integrals along a dimension.
#include <algorithm>
#include <vector>

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

// Returns the derivative of `y` along `dim` between points at `x`, or `step` apart if it is
// undefined: with the distances p and q to the neighbors, those of the parabola through the three.
Tensor derivative(const Tensor& y, const Tensor& x, double step, int64_t dim, int64_t edge_order) {
  const int64_t n = y.size(dim);
  const auto points = [&](int64_t start, int64_t length = 1) {
    return y.narrow(dim, start, length);
  };
  const Tensor last = points(2, n - 2), mid = points(1, n - 2), first = points(0, n - 2);
  const int64_t end = n - 1;
  if (!x.defined()) {
    const Tensor inner = (last - first) / (2 * step);
    if (edge_order == 1) {
      return mytorch::cat(
          {(points(1) - points(0)) / step, inner, (points(end) - points(end - 1)) / step}, dim);
    }
    const Tensor left = (points(1) * 4 - points(0) * 3 - points(2)) / (2 * step);
    const Tensor right = (points(end) * 3 - points(end - 1) * 4 + points(end - 2)) / (2 * step);
    return mytorch::cat({left, inner, right}, dim);
  }
  Dims sizes(y.dim(), 1);
  sizes[dim] = n - 1;
  const Tensor widths = (x.narrow(0, 1, n - 1) - x.narrow(0, 0, n - 1)).reshape(as_list(sizes));
  const auto width = [&](int64_t start, int64_t length) {
    return widths.narrow(dim, start, length);
  };
  const Tensor p = width(0, n - 2), q = width(1, n - 2);
  const Tensor inner = (last - mid) / q * (p / (p + q)) + (mid - first) / p * (q / (p + q));
  Tensor left = (points(1) - points(0)) / width(0, 1);
  Tensor right = (points(end) - points(end - 1)) / width(end - 1, 1);
  if (edge_order == 2) {
    // The slope of the parabola at its end is the chord's minus its curvature times the distance.
    const Tensor p0 = width(0, 1), q0 = width(1, 1);
    const Tensor p1 = width(end - 2, 1), q1 = width(end - 1, 1);
    left = left - ((points(2) - points(1)) / q0 - left) * (p0 / (p0 + q0));
    right = right + (right - (points(end - 1) - points(end - 2)) / p1) * (q1 / (p1 + q1));
  }
  return mytorch::cat({left, inner, right}, dim);
}

Dims gradient_dims(const Tensor& self, OptionalIntList dim, size_t given, int64_t edge_order) {
  const char* op = "gradient";
  check_type(self.dtype() != kBool, op, "self is bool: convert it to a number type");
  check_value(edge_order == 1 || edge_order == 2, op, "edge_order is ", edge_order,
              ": it must be 1 or 2");
  Dims dims;
  if (dim.has_value()) {
    for (const int64_t d : *dim) dims.push_back(wrap_dim(d, self.dim(), op));
  } else {
    for (int64_t d = 0; d < self.dim(); ++d) dims.push_back(d);
  }
  for (const int64_t d : dims) {
    check_shape(self.dim() > 0 && self.size(d) > edge_order, op, "dimension ", d, " of shape ",
                self.sizes(), " has too few points: edge_order ", edge_order, " needs ",
                edge_order + 1);
    check_value(std::count(dims.begin(), dims.end(), d) == 1, op, "dim has ", d, " twice");
  }
  check_value(given == dims.size() || given == 1, op, "spacing has ", given, " entries for ",
              dims.size(), " dimensions: give one for each");
  return dims;
}

}  // namespace

std::vector<Tensor> gradient_spacing(const Tensor& self, OptionalFloatList spacing,
                                     OptionalIntList dim, int64_t edge_order) {
  const Dims dims = gradient_dims(self, dim, spacing.has_value() ? spacing->size() : 1, edge_order);
  const Tensor y = is_differentiable(self.dtype()) ? self : self.to(kFloat32);
  std::vector<Tensor> results;
  for (size_t i = 0; i < dims.size(); ++i) {
    const double step = !spacing.has_value() ? 1 : (*spacing)[spacing->size() == 1 ? 0 : i];
    results.push_back(derivative(y, {}, step, dims[i], edge_order));
  }
  return results;
}

std::vector<Tensor> gradient_coordinates(const Tensor& self, TensorList spacing,
                                         OptionalIntList dim, int64_t edge_order) {
  const Dims dims = gradient_dims(self, dim, spacing.size(), edge_order);
  const Tensor y = is_differentiable(self.dtype()) ? self : self.to(kFloat32);
  std::vector<Tensor> results;
  for (size_t i = 0; i < dims.size(); ++i) {
    const Tensor& x = spacing[spacing.size() == 1 ? 0 : i];
    check_shape(x.dim() == 1 && x.size(0) == y.size(dims[i]), "gradient",
                "the coordinates of shape ", x.sizes(), " do not match dimension ", dims[i],
                " of shape ", y.sizes());
    results.push_back(derivative(y, x, 1, dims[i], edge_order));
  }
  return results;
}

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
