// Activations that consist of other operators.

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/empty_like.h"
#include "mytorch/ops/leaky_relu.h"
#include "mytorch/ops/prelu_terms.h"
#include "ops/check.h"
#include "ops/composites.h"
#include "ops/geometry.h"

namespace mytorch::composite {

Tensor glu(const Tensor& self, int64_t dim) {
  check_shape(self.dim() != 0, "glu", "a 0-dim tensor has no halves");
  const int64_t at = wrap_dim(dim, self.dim(), "glu");
  check_shape(self.size(at) % 2 == 0, "glu", "dimension ", dim, " of shape ", self.sizes(),
              " cannot be halved");
  const int64_t half = self.size(at) / 2;
  return self.narrow(at, 0, half) * self.narrow(at, half, half).sigmoid();
}

Tensor prelu(const Tensor& self, const Tensor& weight) {
  check_type(self.dtype() == weight.dtype(), "prelu", "self is ", self.dtype(), " and weight is ",
             weight.dtype(), ": convert one of them");
  check_shape(weight.dim() <= 1, "prelu", "weight has shape ", weight.sizes(),
              ": give one number, or a vector with one for each channel");
  if (weight.numel() == 1) return mytorch::prelu_terms(self, weight.reshape({}));
  check_shape(self.dim() >= 2 && self.size(1) == weight.numel(), "prelu", "self ", self.sizes(),
              " does not have ", weight.numel(), " channels in dimension 1, one for each weight");
  Dims sizes(self.dim() - 1, 1);
  sizes[0] = weight.numel();
  return mytorch::prelu_terms(self, weight.reshape(as_list(sizes)));
}

Tensor rrelu(const Tensor& self, double lower, double upper, bool training,
             std::optional<Generator> generator) {
  if (!training) return mytorch::leaky_relu(self, (lower + upper) / 2);
  check_value(lower <= upper, "rrelu", "lower ", lower, " is greater than upper ", upper);
  const Tensor slope = mytorch::empty_like(self.detach());
  slope.uniform_(lower, upper, generator);
  return mytorch::prelu_terms(self, slope);
}

}  // namespace mytorch::composite
