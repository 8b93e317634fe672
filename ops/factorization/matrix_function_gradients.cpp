// Gradients of the exponential and the square root of a matrix.
#include "mytorch/ops/cat.h"
#include "mytorch/ops/linalg_eigh_forward.h"
#include "mytorch/ops/linalg_matrix_exp.h"
#include "mytorch/ops/mH.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/sqrt.h"
#include "ops/factorization/gradient_terms.h"
#include "ops/gradients.h"

namespace mytorch {

using namespace factorization;

namespace grads {

// The block (1, 2) of exp((A^H, G; 0, A^H)) is the derivative of exp at A^H in the direction G
// (R. Mathias, 1996).
Tensor matrix_exp_backward(const Tensor& grad, const Tensor& a) {
  const int64_t n = a.size(-1);
  const Tensor corner = mytorch::mH(a);
  const Tensor upper = mytorch::cat({corner, grad}, -1);
  const Tensor lower = mytorch::cat({zeros_like_shape(a, a.sizes()), corner}, -1);
  const Tensor whole = mytorch::linalg_matrix_exp(mytorch::cat({upper, lower}, -2));
  return mytorch::narrow(mytorch::narrow(whole, -2, 0, n), -1, n, n);
}

// X dX + dX X = dA, in the eigenvectors of A.
Tensor matrix_sqrth_backward(const Tensor& grad, const Tensor& a) {
  const auto [values, v] = mytorch::linalg_eigh_forward(a, "L", true);
  const Tensor roots = mytorch::sqrt(values);
  const Tensor inner =
      product_of(product_of(mytorch::mH(v), grad), v) / (roots.unsqueeze(-2) + roots.unsqueeze(-1));
  return product_of(product_of(v, (inner + mytorch::mH(inner)) * 0.5), mytorch::mH(v));
}

}  // namespace grads
}  // namespace mytorch
