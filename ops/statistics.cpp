// Statistics that consist of other operators.
#include <algorithm>
#include <tuple>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/std.h"
#include "mytorch/ops/zeros.h"
#include "ops/check.h"

namespace mytorch::composite {

Tensors<2> std_mean(const Tensor& self, OptionalIntList dim, const Scalar& correction,
                    bool keepdim) {
  check_floating(self, "self", "std_mean");
  return {mytorch::std(self, dim, correction, keepdim), mytorch::mean(self, dim, keepdim)};
}

Tensor bincount(const Tensor& self, const Tensor& weights, int64_t minlength) {
  const char* op = "bincount";
  check_shape(self.dim() == 1, op, "self has shape ", self.sizes(), ": it must be a vector");
  check_type(is_integral(self.dtype()), op, "self is ", self.dtype(), ": it must be integral");
  check_value(minlength >= 0, op, "minlength is ", minlength, ": it must not be negative");
  ScalarType type = kInt64;
  if (weights.defined()) {
    check_shape(weights.sizes() == self.sizes(), op, "weights of shape ", weights.sizes(),
                " do not match self, of shape ", self.sizes());
    type = weights.dtype() == kFloat32 ? kFloat32 : kFloat64;
  }
  int64_t size = minlength;
  if (self.numel() > 0) {
    check_value(self.min().item().to<int64_t>() >= 0, op, "self has a negative element");
    const int64_t largest = self.max().item().to<int64_t>();
    size = std::max(size, checked(Wide{largest} + 1, op, "the number of counts"));
  }
  const Tensor counts = mytorch::zeros({size}, type, self.device());
  const Tensor index = self.to(kInt64);
  return counts.scatter_add(
      0, index,
      weights.defined() ? weights.to(type) : mytorch::ones(self.sizes(), type, self.device()));
}

}  // namespace mytorch::composite
