// Diagonals, and matrices of them.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/diagonal_backward.h"
#include "ops/check.h"
#include "ops/geometry.h"

namespace mytorch::composite {

Tensor diag(const Tensor& self, int64_t diagonal) {
  check_shape(self.dim() == 1 || self.dim() == 2, "diag", "shape ", self.sizes(),
              " is neither a vector nor a matrix");
  if (self.dim() == 2) return self.diagonal(diagonal).clone();
  const int64_t size = checked(
      Wide{self.size(0)} + (diagonal < 0 ? -Wide{diagonal} : Wide{diagonal}), "diag", "the size");
  return mytorch::diagonal_backward(self, {size, size}, diagonal, 0, 1);
}

Tensor diag_embed(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  const char* op = "diag_embed";
  check_shape(self.dim() >= 1, op, "self is 0-dim: its last dimension becomes the diagonal");
  const int64_t ndim = self.dim() + 1;
  const int64_t first = wrap_dim(dim1, ndim, op), second = wrap_dim(dim2, ndim, op);
  check_value(first != second, op, "dim1 and dim2 are both dimension ", first);
  const Wide size = Wide{self.size(-1)} + (offset < 0 ? -Wide{offset} : Wide{offset});
  Dims sizes(ndim, checked(size, op, "the size of the matrices"));
  int64_t next = 0;
  for (int64_t d = 0; d < ndim; ++d) {
    if (d != first && d != second) sizes[d] = self.sizes()[next++];
  }
  return mytorch::diagonal_backward(self, as_list(sizes), offset, first, second);
}

}  // namespace mytorch::composite
