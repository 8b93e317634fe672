// Products that consist of other operators.
#include <algorithm>
#include <limits>
#include <vector>

#include "core/types/broadcast.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/addmm.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cross.h"
#include "mytorch/ops/einsum.h"
#include "mytorch/ops/linalg_cross.h"
#include "mytorch/ops/linalg_vander.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/pow.h"
#include "mytorch/ops/tensordot.h"
#include "ops/check.h"
#include "ops/composites.h"
#include "ops/geometry.h"
#include "ops/gradients.h"

namespace mytorch::composite {

Tensor addbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
              const Scalar& alpha) {
  check_shape(batch1.dim() == 3 && batch2.dim() == 3 && batch1.size(0) == batch2.size(0) &&
                  batch1.size(2) == batch2.size(1),
              "addbmm", "shapes ", batch1.sizes(), " and ", batch2.sizes(),
              " are not batches (b, n, m) and (b, m, p)");
  // One product, whose inner dimension is that of all matrices.
  const int64_t inner = checked_product(IntList{batch2.size(0), batch2.size(1)}, "addbmm");
  const Tensor rows = batch1.transpose(0, 1).reshape({batch1.size(1), inner});
  return mytorch::addmm(self, rows, batch2.reshape({inner, batch2.size(2)}), beta, alpha);
}

Tensor inner(const Tensor& self, const Tensor& other) {
  if (self.dim() == 0 || other.dim() == 0) return self * other;
  check_shape(self.size(-1) == other.size(-1), "inner", "the last dimensions of shapes ",
              self.sizes(), " and ", other.sizes(), " differ");
  return mytorch::tensordot(self, other, {-1}, {-1});
}

Tensor kron(const Tensor& self, const Tensor& other) {
  const int64_t ndim = std::max(self.dim(), other.dim());
  Dims left, right, sizes;
  for (int64_t d = 0; d < ndim; ++d) {
    const auto size_of = [&](const Tensor& x) {
      const int64_t at = d - (ndim - x.dim());
      return at < 0 ? 1 : x.sizes()[at];
    };
    const int64_t a = size_of(self), b = size_of(other);
    left.insert(left.end(), {a, 1});
    right.insert(right.end(), {1, b});
    sizes.push_back(checked(Wide{a} * b, "kron", "the size"));
  }
  return (self.reshape(as_list(left)) * other.reshape(as_list(right))).reshape(as_list(sizes));
}

Tensor linalg_cross(const Tensor& self, const Tensor& other, int64_t dim) {
  const char* op = "linalg_cross";
  const int64_t ndim = std::max(self.dim(), other.dim());
  check_shape(self.dim() == other.dim() && ndim > 0, op, "shapes ", self.sizes(), " and ",
              other.sizes(), " do not have the same, positive number of dimensions");
  const int64_t at = wrap_dim(dim, ndim, op);
  check_shape(self.size(at) == 3 && other.size(at) == 3, op, "dimension ", at, " of shapes ",
              self.sizes(), " and ", other.sizes(), " does not have size 3");
  const auto rolled = [&](const Tensor& x, int64_t by) { return x.roll({by}, {at}); };
  return rolled(self, -1) * rolled(other, -2) - rolled(self, -2) * rolled(other, -1);
}

Tensor cross(const Tensor& self, const Tensor& other, std::optional<int64_t> dim) {
  if (dim) return mytorch::linalg_cross(self, other, *dim);
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (self.size(d) == 3) return mytorch::linalg_cross(self, other, d);
  }
  refuse(ErrorCode::kShape, "cross", "no dimension of shape ", self.sizes(), " has size 3");
}

Tensor linalg_multi_dot(TensorList tensors) {
  const char* op = "linalg_multi_dot";
  check_value(!tensors.empty(), op, "the list of tensors is empty");
  std::vector<Tensor> chain(tensors.begin(), tensors.end());
  const auto n = static_cast<int64_t>(chain.size());
  for (int64_t i = 0; i < n; ++i) {
    const bool may_be_vector = n > 1 && (i == 0 || i == n - 1);
    check_shape(chain[i].dim() == 2 || (may_be_vector && chain[i].dim() == 1), op, "tensor ", i,
                " has shape ", chain[i].sizes(),
                ": give matrices, of which the first and the last may be vectors");
  }
  if (n == 1) return chain[0].clone();
  const bool row = chain.front().dim() == 1, column = chain.back().dim() == 1;
  if (row) chain.front() = chain.front().unsqueeze(0);
  if (column) chain.back() = chain.back().unsqueeze(1);
  for (int64_t i = 0; i + 1 < n; ++i) {
    check_shape(chain[i].size(1) == chain[i + 1].size(0), op, "the inner dimensions of tensors ", i,
                ", ", chain[i].sizes(), ", and ", i + 1, ", ", chain[i + 1].sizes(), ", differ");
  }
  // The matrix chain problem: the least number of products for each part of the chain.
  const auto at = [&](int64_t i, int64_t j) { return static_cast<size_t>(i * n + j); };
  std::vector<double> least(static_cast<size_t>(n * n), 0);
  std::vector<int64_t> cut(static_cast<size_t>(n * n), 0);
  const auto size = [&](int64_t i) {
    return static_cast<double>(i < n ? chain[i].size(0) : chain[n - 1].size(1));
  };
  for (int64_t length = 1; length < n; ++length) {
    for (int64_t i = 0; i + length < n; ++i) {
      const int64_t j = i + length;
      least[at(i, j)] = std::numeric_limits<double>::infinity();
      for (int64_t k = i; k < j; ++k) {
        const double work =
            least[at(i, k)] + least[at(k + 1, j)] + size(i) * size(k + 1) * size(j + 1);
        if (work < least[at(i, j)]) least[at(i, j)] = work, cut[at(i, j)] = k;
      }
    }
  }
  const auto product = [&](const auto& self, int64_t i, int64_t j) -> Tensor {
    if (i == j) return chain[i];
    const int64_t k = cut[at(i, j)];
    return mytorch::mm(self(self, i, k), self(self, k + 1, j));
  };
  Tensor result = product(product, 0, n - 1);
  if (column) result = result.squeeze(1);
  return row ? result.squeeze(0) : result;
}

Tensor linalg_vander(const Tensor& x, std::optional<int64_t> n) {
  const char* op = "linalg_vander";
  check_shape(x.dim() >= 1, op, "x is 0-dim: its last dimension is that of the elements");
  const int64_t count = n.value_or(x.size(-1));
  check_value(count >= 0, op, "N is ", count, ": it must not be negative");
  const Tensor base = x.dtype() == kBool ? x.to(kInt64) : x;
  return mytorch::pow(base.unsqueeze(-1), mytorch::arange(count, kInt64, x.device()));
}

Tensor vander(const Tensor& x, std::optional<int64_t> n, bool increasing) {
  check_shape(x.dim() == 1, "vander", "x has shape ", x.sizes(), ": it must be a vector");
  const Tensor powers = mytorch::linalg_vander(x, n);
  return increasing ? powers : powers.flip({1});
}

Tensor bilinear(const Tensor& input1, const Tensor& input2, const Tensor& weight,
                const Tensor& bias) {
  check_shape(weight.dim() == 3 && input1.dim() != 0 && input1.dim() == input2.dim() &&
                  input1.size(-1) == weight.size(1) && input2.size(-1) == weight.size(2),
              "bilinear", "inputs ", input1.sizes(), " and ", input2.sizes(), " do not fit weight ",
              weight.sizes(), ": give (..., in1), (..., in2) and (out, in1, in2)");
  const Tensor result = mytorch::einsum("...i,oij,...j->...o", {input1, weight, input2});
  return bias.defined() ? result + bias : result;
}

}  // namespace mytorch::composite
