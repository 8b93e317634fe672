// Reductions that are made of others.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/maximum.h"
#include "mytorch/ops/minimum.h"
#include "mytorch/ops/ne.h"
#include "mytorch/ops/sum.h"

namespace mytorch::composite {

Tensor max_other(const Tensor& self, const Tensor& other) { return maximum(self, other); }
Tensor min_other(const Tensor& self, const Tensor& other) { return minimum(self, other); }

Tensor count_nonzero(const Tensor& self, OptionalIntList dim) { return sum(ne(self, 0), dim); }

Tensor norm(const Tensor& self, std::optional<Scalar> p, OptionalIntList dim, bool keepdim,
            std::optional<ScalarType> dtype) {
  return linalg_vector_norm(self, p.value_or(2), dim, keepdim, dtype);
}

}  // namespace mytorch::composite
