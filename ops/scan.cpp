// Running sums.
#include "mytorch/generated/bodies.h"

namespace mytorch::shape {

TensorSpec cumsum(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  wrap_dim(dim, self.dim(), "cumsum");
  TensorSpec spec = like(self);
  spec.dtype = dtype.value_or(is_floating_point(self.dtype()) ? self.dtype() : kInt64);
  return spec;
}

}  // namespace mytorch::shape
