// Distances between all pairs of rows. The differences of a pair exist for a block of rows at a
// time: all of them would be as many times larger than the result as a row is long.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/types/broadcast.h"
#include "core/types/checked.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/cdist.h"
#include "mytorch/ops/cdist_backward.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/maximum.h"
#include "mytorch/ops/minimum.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/geometry.h"
#include "ops/gradients.h"
#include "ops/precision.h"
#include "ops/spec.h"

namespace mytorch {
namespace {

// Elements of a block of differences.
constexpr int64_t kBlock = int64_t{1} << 20;

Dims batches_of(const Tensor& x1, const Tensor& x2, const char* op) {
  return broadcast_shapes(as_list(geometry::leading_sizes(x1, 2)),
                          as_list(geometry::leading_sizes(x2, 2)), op);
}

void check_rows(const Tensor& x1, const Tensor& x2, double p, const char* op) {
  check_shape(x1.dim() >= 2 && x2.dim() >= 2 && x1.size(-1) == x2.size(-1), op, "x1 ", x1.sizes(),
              " and x2 ", x2.sizes(), " are not (..., P, M) and (..., R, M)");
  check_value(p >= 0, op, "p is ", p, ": it must not be negative");
  check_type(is_floating_point(to_real(x1.dtype())) && is_floating_point(to_real(x2.dtype())), op,
             "x1 is ", x1.dtype(), " and x2 is ", x2.dtype(), ": they must be of floating types");
}

// Calls f(first, count) for the rows of x1, as many at a time as a block of differences holds.
template <class F>
void for_each_block(const Tensor& x1, const Tensor& x2, F&& f) {
  int64_t row = x2.size(-2) * x2.size(-1);
  for (const int64_t size : batches_of(x1, x2, "cdist")) row *= size;
  const int64_t rows = x1.size(-2);
  const int64_t most = std::max<int64_t>(kBlock / std::max<int64_t>(row, 1), 1);
  for (int64_t first = 0; first == 0 || first < rows; first += most) {
    f(first, std::min(most, rows - first));
  }
}

Tensor joined(const std::vector<Tensor>& parts, int64_t dim) {
  return parts.size() == 1 ? parts[0] : mytorch::cat(parts, dim);
}

// The differences of `count` rows of x1, beginning at `first`, from all rows of x2.
Tensor differences(const Tensor& x1, int64_t first, int64_t count, const Tensor& x2) {
  return widened(x1.narrow(-2, first, count)).unsqueeze(-2) - widened(x2).unsqueeze(-3);
}

// The distances of a block. The largest difference, which is looked for in the differences, would
// not be found if it had been rounded to 16 bits.
Tensor norm_of(const Tensor& difference, double p, const Tensor& distances, int64_t first) {
  if (std::isinf(p) && difference.dtype() != distances.dtype()) {
    return mytorch::linalg_vector_norm(difference, p, {-1});
  }
  return widened(distances.narrow(-2, first, difference.size(-3)));
}

// The rows of a block of pairs with all of n rows.
int64_t rows_of_pairs(int64_t n) {
  constexpr int64_t kPairs = int64_t{1} << 18;
  return std::max<int64_t>(kPairs / std::max<int64_t>(n, 1), 1);
}

}  // namespace

namespace shape {

TensorSpec cdist(const Tensor& x1, const Tensor& x2, double p) {
  check_rows(x1, x2, p, "cdist");
  Dims sizes = batches_of(x1, x2, "cdist");
  sizes.push_back(x1.size(-2));
  sizes.push_back(x2.size(-2));
  return like(x1, std::move(sizes), to_real(promote_types(x1.dtype(), x2.dtype())));
}

TensorSpec cdist_backward(const Tensor& grad_output, const Tensor& x1, const Tensor& x2, double p,
                          const Tensor& distances) {
  const char* op = "cdist_backward";
  check_rows(x1, x2, p, op);
  check_floating(x1, "x1", op);
  Dims sizes = batches_of(x1, x2, op);
  sizes.push_back(x1.size(-2));
  sizes.push_back(x2.size(-2));
  check_shape(grad_output.sizes() == as_list(sizes) && distances.sizes() == as_list(sizes), op,
              "grad_output ", grad_output.sizes(), " and distances ", distances.sizes(),
              " are not of shape ", as_list(sizes));
  sizes.back() = x1.size(-1);
  return like(x1, std::move(sizes));
}

TensorSpec pdist(const Tensor& self, double p) {
  check_shape(self.dim() == 2, "pdist", "self has shape ", self.sizes(), ": it must be a matrix");
  check_floating(self, "self", "pdist");
  check_value(p >= 0, "pdist", "p is ", p, ": it must not be negative");
  const Wide n = self.size(0);
  return like(self, {checked(n * (n - 1) / 2, "pdist", "the number of pairs")});
}

}  // namespace shape

namespace composite {

Tensor cdist(const Tensor& x1, const Tensor& x2, double p) {
  if (x1.size(-1) == 0) {
    const TensorSpec spec = shape::cdist(x1, x2, p);
    return mytorch::zeros(as_list(spec.sizes), spec.dtype, spec.device);
  }
  std::vector<Tensor> parts;
  for_each_block(x1, x2, [&](int64_t first, int64_t count) {
    parts.push_back(mytorch::linalg_vector_norm(differences(x1, first, count, x2), p, {-1}));
  });
  return joined(parts, -2).to(to_real(x1.dtype()));
}

Tensor cdist_backward(const Tensor& grad_output, const Tensor& x1, const Tensor& x2, double p,
                      const Tensor& distances) {
  if (x1.size(-1) == 0 || x2.size(-2) == 0) {
    const TensorSpec spec = shape::cdist_backward(grad_output, x1, x2, p, distances);
    return mytorch::zeros(as_list(spec.sizes), spec.dtype, spec.device);
  }
  std::vector<Tensor> parts;
  for_each_block(x1, x2, [&](int64_t first, int64_t count) {
    const Tensor difference = differences(x1, first, count, x2);
    parts.push_back(grads::norm_backward(widened(grad_output.narrow(-2, first, count)), difference,
                                         p, norm_of(difference, p, distances, first), {-1}, false)
                        .sum({-2}));
  });
  return joined(parts, -2).to(x1.dtype());
}

Tensor pdist(const Tensor& self, double p) {
  // A block of rows and those behind its first one: all pairs but those within the block once.
  const int64_t n = self.size(0), most = rows_of_pairs(n);
  std::vector<Tensor> parts;
  for (int64_t first = 0; first == 0 || first + 1 < n; first += most) {
    const int64_t rows = std::min(most, n - first), columns = n - first;
    const Tensor square =
        mytorch::cdist(self.narrow(0, first, rows), self.narrow(0, first, columns), p);
    const Tensor above = mytorch::ones({rows, columns}, kBool, self.device()).triu(1);
    const Tensor places = above.reshape({rows * columns}).nonzero().reshape({-1});
    parts.push_back(square.reshape({rows * columns}).index_select(0, places));
  }
  return joined(parts, 0);
}

}  // namespace composite

namespace grads {

// The gradient of cdist, for a block of rows at a time.
Tensor pdist_backward(const Tensor& grad, const Tensor& self, double p, const Tensor& distances) {
  const int64_t n = self.size(0), most = rows_of_pairs(n);
  if (grad.numel() == 0) return mytorch::zeros_like(self);
  const Tensor columns = mytorch::arange(n, kInt64, self.device());
  std::vector<Tensor> parts;
  for (int64_t first = 0; first < n; first += most) {
    const Tensor rows = columns.narrow(0, first, std::min(most, n - first)).unsqueeze(1);
    const Tensor low = mytorch::minimum(rows, columns), high = mytorch::maximum(rows, columns);
    // Of (low, high) in the triangle.
    const Tensor place = (low * (2 * n - 1 - low)).floor_divide(2) + high - low - 1;
    const Tensor none = rows == columns;
    const Tensor from = mytorch::where(none, 0, place).reshape({-1});
    const auto square = [&](const Tensor& x) {
      return mytorch::where(none, 0, x.index_select(0, from).reshape(none.sizes()));
    };
    parts.push_back(mytorch::cdist_backward(square(grad), self.narrow(0, first, rows.size(0)), self,
                                            p, square(distances)));
  }
  return joined(parts, 0);
}

// With d the differences and D the distances, the gradient is the sum over rows of x2 of
// g * sign(d) * (|d| / D)^(p - 1). `distances` is an operand of its own.
Tensors<4> cdist_double_backward(const Tensor* grads, const Tensor& grad_output, const Tensor& x1,
                                 const Tensor& x2, double p, const Tensor& distances,
                                 const bool* wanted) {
  const Tensor& grad = grads[0];
  if (!grad.defined()) return {};
  const bool smooth = p != 0 && p != 1 && !std::isinf(p);
  std::vector<Tensor> slopes, of_x1, of_distances;
  Tensor of_x2;
  const bool empty = x1.size(-1) == 0 || x2.size(-2) == 0 || x1.size(-2) == 0;
  if (!empty) {
    for_each_block(x1, x2, [&](int64_t first, int64_t count) {
      const auto part = [&](const Tensor& x) { return widened(x.narrow(-2, first, count)); };
      const Tensor d = differences(x1, first, count, x2), v = part(grad).unsqueeze(-2);
      const Tensor g = part(grad_output), norm = norm_of(d, p, distances, first);
      const bool bends = smooth && p != 2;
      if (wanted[0] || (wanted[3] && smooth)) {
        const Tensor unit = norm_backward(mytorch::ones_like(norm), d, p, norm, {-1}, false);
        const Tensor slope = (v * unit).sum({-1});
        if (wanted[0]) slopes.push_back(slope);
        if (wanted[3] && smooth) {
          const Tensor zero = norm == 0;
          of_distances.push_back(
              mytorch::where(zero, 0, g * slope * (1 - p) / mytorch::where(zero, 1, norm)));
        }
      }
      if (!smooth || !(wanted[1] || wanted[2])) return;
      const Tensor zero = norm == 0;
      Tensor bend = mytorch::where(zero, 0, g * (p - 1) / mytorch::where(zero, 1, norm));
      bend = v * bend.unsqueeze(-1);
      if (bends) {
        // As in the gradient of a norm.
        const Tensor length = norm.unsqueeze(-1);
        const Tensor none = p < 2 ? d == 0 : length == 0;
        const Tensor quotient = mytorch::where(none, 1, d.abs()) / mytorch::where(none, 1, length);
        bend = mytorch::where(none, 0, bend * quotient.pow(p - 2));
      }
      if (wanted[1]) of_x1.push_back(bend.sum({-2}));
      if (wanted[2]) {
        const Tensor sum = bend.sum({-3}).neg();
        of_x2 = of_x2.defined() ? of_x2 + sum : sum;
      }
    });
  }
  const auto finished = [&](const std::vector<Tensor>& parts, const Tensor& of) {
    if (parts.empty()) return mytorch::zeros_like(of);
    return sum_to(joined(parts, -2), of.sizes()).to(of.dtype());
  };
  Tensors<4> result;
  if (wanted[0]) std::get<0>(result) = finished(slopes, grad_output);
  if (wanted[1]) std::get<1>(result) = finished(of_x1, x1);
  if (wanted[2]) {
    std::get<2>(result) =
        of_x2.defined() ? sum_to(of_x2, x2.sizes()).to(x2.dtype()) : mytorch::zeros_like(x2);
  }
  if (wanted[3]) std::get<3>(result) = finished(of_distances, distances);
  return result;
}

}  // namespace grads
}  // namespace mytorch
