// Copies with other elements in a view of them.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/as_strided.h"
#include "mytorch/ops/diagonal_backward.h"
#include "ops/check.h"
#include "ops/geometry.h"

namespace mytorch::composite {
namespace {

// Returns a copy of `self` in which the view that `view(copy)` returns holds `src`.
template <class View>
Tensor written(const Tensor& self, const Tensor& src, const char* op, const View& view) {
  Tensor result = self.clone();
  const Tensor part = view(result);
  check_shape(part.sizes() == src.sizes(), op, "src has shape ", src.sizes(),
              ", but the elements that it replaces have shape ", part.sizes());
  part.copy_(src);
  return result;
}

}  // namespace

Tensor select_scatter(const Tensor& self, const Tensor& src, int64_t dim, int64_t index) {
  return written(self, src, "select_scatter",
                 [&](const Tensor& copy) { return copy.select(dim, index); });
}

Tensor slice_scatter(const Tensor& self, const Tensor& src, int64_t dim,
                     std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  return written(self, src, "slice_scatter",
                 [&](const Tensor& copy) { return copy.slice(dim, start, end, step); });
}

Tensor diagonal_scatter(const Tensor& self, const Tensor& src, int64_t offset, int64_t dim1,
                        int64_t dim2) {
  return written(self, src, "diagonal_scatter",
                 [&](const Tensor& copy) { return copy.diagonal(offset, dim1, dim2); });
}

Tensor as_strided_scatter(const Tensor& self, const Tensor& src, IntList size, IntList stride,
                          std::optional<int64_t> storage_offset) {
  return written(self, src, "as_strided_scatter", [&](const Tensor& copy) {
    return mytorch::as_strided(copy, size, stride, storage_offset);
  });
}

void fill_diagonal_(const Tensor& self, const Scalar& fill_value, bool wrap) {
  const char* op = "fill_diagonal_";
  check_shape(self.dim() >= 2, op, "self is ", self.dim(), "-dim: it needs at least 2 dimensions");
  const int64_t rows = self.size(0), columns = self.size(1);
  if (self.dim() == 2) {
    // With `wrap`, each block of columns + 1 rows has a diagonal and a row without one.
    const int64_t blocks = wrap && columns > 0 ? rows / (columns + 1) : 0;
    const int64_t wrapped = blocks * (columns + 1);
    if (blocks > 0) {
      const Tensor whole = self.slice(0, 0, wrapped).unflatten(0, {blocks, columns + 1});
      whole.diagonal(0, 1, 2).fill_(fill_value);
    }
    self.slice(0, wrapped).diagonal().fill_(fill_value);
    return;
  }
  Tensor diagonal = self;
  while (diagonal.dim() > 1) {
    check_shape(diagonal.size(-1) == columns && diagonal.size(0) == columns, op, "shape ",
                self.sizes(), ": more than two dimensions must be of equal sizes");
    diagonal = diagonal.diagonal(0, 0, -1);
  }
  diagonal.fill_(fill_value);
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
