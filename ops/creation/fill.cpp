// Filling.
#include "core/types/holds.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/fill_.h"
#include "ops/check.h"

namespace mytorch::shape {

void fill_(const Tensor& self, const Operand& value) {
  self.sizes();
  if (value.is_scalar() && !value.scalar().is_complex() && !holds(self.dtype(), value.scalar())) {
    fail(ErrorCode::kValue, "[fill_] ", number_text(value.scalar()), " is not a value of ",
         dtype_name(self.dtype()), ": give one that is, or choose another dtype");
  }
  if (!value.is_tensor()) return;
  const IntList sizes = value.impl()->sizes();
  check_shape(sizes.empty(), "fill_", "value has shape ", sizes,
              ", but only a number or a 0-dim tensor fills: use copy_ for the rest");
}

}  // namespace mytorch::shape

namespace mytorch::composite {

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

}  // namespace mytorch::composite
