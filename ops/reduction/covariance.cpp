// Covariances and correlations.
#include <algorithm>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/clamp.h"
#include "mytorch/ops/complex.h"
#include "mytorch/ops/diagonal.h"
#include "mytorch/ops/imag.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/real.h"
#include "mytorch/ops/sqrt.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/view_as_real.h"
#include "ops/check.h"
#include "ops/gradients.h"

namespace mytorch::composite {

// Returns a times the adjoint of b. Of complex matrices, one real product of the rows as they lie
// in memory, r0 i0 r1 i1 ..., with those of b and 1j * b in turns gives the parts of the result as
// they lie in memory; the conjugate of b is never formed.
static Tensor product_with_adjoint(const Tensor& a, const Tensor& b) {
  if (!a.is_complex()) return mytorch::mm(a, b.transpose(0, 1));
  const int64_t n = a.size(0), p = b.size(0), m = a.size(1);
  const Tensor rows = mytorch::view_as_real(a).reshape({n, 2 * m});
  const Tensor both = mytorch::stack({b, b * Scalar::complex(0, 1)}, 1);
  const Tensor columns = mytorch::view_as_real(both).reshape({2 * p, 2 * m});
  return grads::as_complex(mytorch::mm(rows, columns.transpose(0, 1)).reshape({n, p, 2}));
}

Tensor cov(const Tensor& self, int64_t correction, const Tensor& fweights, const Tensor& aweights) {
  const char* op = "cov";
  check_shape(self.dim() <= 2, op, "shape ", self.sizes(), " has more than two dimensions");
  check_type(self.dtype() != kBool, op, "self is bool: convert it to a number type");
  const Tensor matrix = self.dim() == 2 ? self : self.reshape({1, self.numel()});
  const Tensor x = is_integral(matrix.dtype()) ? matrix.to(kFloat32) : matrix;
  const ScalarType type = to_real(x.dtype());  // of the weights
  const int64_t count = x.size(1);
  Tensor weights;
  const auto check_weights = [&](const Tensor& w, const char* name, bool integral) {
    check_shape(w.dim() <= 1 && w.numel() == count, op, name, " has shape ", w.sizes(),
                ": give one number for each of ", count, " observations");
    check_type(is_integral(w.dtype()) == integral && w.dtype() != kBool, op, name, " is ",
               w.dtype(), integral ? ": it must be integral" : ": it must be of a floating type");
    weights = weights.defined() ? weights * w.to(type) : w.to(type);
  };
  if (fweights.defined()) check_weights(fweights, "fweights", true);
  if (aweights.defined()) check_weights(aweights, "aweights", false);
  const double c = static_cast<double>(correction);
  Tensor average, factor;
  if (!weights.defined()) {
    average = x.mean({1}, true);
  } else {
    const Tensor total = weights.sum();
    average = (x * weights).sum({1}, true) / total;
    Tensor bias =
        aweights.defined() ? (weights * aweights.to(type)).sum() / total * c : total * 0 + c;
    factor = mytorch::clamp(total - bias, 0.0);
  }
  const Tensor centered = x - average;
  const Tensor weighted = weights.defined() ? centered * weights : centered;
  const Tensor product = product_with_adjoint(weighted, centered);
  const Tensor result =
      factor.defined() ? product / factor : product / std::max(static_cast<double>(count) - c, 0.0);
  return result.numel() == 1 ? result.reshape({}) : result;  // one variable
}

Tensor corrcoef(const Tensor& self) {
  check_shape(self.dim() <= 2, "corrcoef", "shape ", self.sizes(), " has more than two dimensions");
  const Tensor c = cov(self, 1, {}, {});
  if (c.dim() == 0) return c / c;
  const Tensor deviation = mytorch::sqrt(mytorch::real(mytorch::diagonal(c)));
  const Tensor result = c / deviation.unsqueeze(1) / deviation;
  if (!result.is_complex()) return mytorch::clamp(result, -1.0, 1.0);
  return mytorch::complex(mytorch::clamp(mytorch::real(result), -1.0, 1.0),
                          mytorch::clamp(mytorch::imag(result), -1.0, 1.0));
}

}  // namespace mytorch::composite
