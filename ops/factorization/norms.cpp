// Norms of matrices and vectors.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/linalg_matrix_norm.h"
#include "mytorch/ops/linalg_vector_norm.h"

namespace mytorch::composite {

Tensor linalg_norm(const Tensor& self, std::optional<Scalar> ord, OptionalIntList dim, bool keepdim,
                   std::optional<ScalarType> dtype) {
  const bool matrix = ord.has_value() && (dim.has_value() ? dim->size() == 2 : self.dim() == 2);
  if (!matrix) return mytorch::linalg_vector_norm(self, ord.value_or(2), dim, keepdim, dtype);
  return mytorch::linalg_matrix_norm(self, *ord, dim.has_value() ? *dim : IntList({-2, -1}),
                                     keepdim, dtype);
}

}  // namespace mytorch::composite
