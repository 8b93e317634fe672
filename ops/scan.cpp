// Running sums.
#include "mytorch/generated/bodies.h"

namespace mytorch::shape {

TensorSpec cumsum(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  wrap_dim(dim, self.dim(), "cumsum");
  return like(self, to_dims(self.sizes()),
              dtype.value_or(self.is_floating_point() ? self.dtype() : kInt64));
}

}  // namespace mytorch::shape
