// Copies with other elements in a view of them.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/as_strided.h"
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

}  // namespace mytorch::composite
