// Powers of matrices.
#include <limits>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/eye.h"
#include "mytorch/ops/linalg_inv.h"
#include "mytorch/ops/linalg_matrix_power.h"
#include "mytorch/ops/matmul.h"
#include "ops/check.h"

namespace mytorch::composite {

Tensor linalg_matrix_power(const Tensor& self, int64_t n) {
  const char* op = "linalg_matrix_power";
  check_shape(self.dim() >= 2 && self.size(-1) == self.size(-2), op, "shape ", self.sizes(),
              " is not that of square matrices");
  if (n < 0) {
    check_value(n != std::numeric_limits<int64_t>::min(), op, "n is out of range");
    return mytorch::linalg_matrix_power(mytorch::linalg_inv(self), -n);
  }
  // A copy of `self` that is overwritten, so that the result has a history: a gradient of 0.
  if (n == 0) return self.clone().copy_(mytorch::eye(self.size(-1), self.dtype(), self.device()));
  Tensor result, power = self;
  for (;;) {
    if (n % 2 == 1) result = result.defined() ? mytorch::matmul(result, power) : power;
    if ((n /= 2) == 0) break;
    power = mytorch::matmul(power, power);
  }
  return result.is_same(self) ? self.clone() : result;
}

}  // namespace mytorch::composite
