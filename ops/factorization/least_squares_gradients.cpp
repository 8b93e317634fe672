// Gradients of pseudo-inverses and of least-squares solutions.
#include <algorithm>
#include <optional>
#include <tuple>

#include "mytorch/ops/linalg_pinv.h"
#include "mytorch/ops/linalg_svd_forward.h"
#include "mytorch/ops/mH.h"
#include "ops/factorization/gradient_terms.h"
#include "ops/gradients.h"

namespace mytorch {

using namespace factorization;

namespace grads {

// G. H. Golub, V. Pereyra, The differentiation of pseudo-inverses, 1973, for constant rank.
static Tensor pinv_gradient(const Tensor& grad, const Tensor& inverse, const Tensor& a) {
  const Tensor g = mytorch::mH(grad), p = mytorch::mH(inverse);
  if (a.size(-2) <= a.size(-1)) {
    const Tensor k = product_of(g, inverse), kp = product_of(k, p);
    return kp - mytorch::mH(product_of(inverse, k)) - product_of(product_of(a, inverse), kp) +
           product_of(product_of(p, inverse), g - product_of(k, a));
  }
  const Tensor k = product_of(inverse, g), pk = product_of(p, k);
  return pk - mytorch::mH(product_of(k, inverse)) +
         product_of(product_of(g - product_of(a, k), inverse), p) -
         product_of(product_of(pk, inverse), a);
}

Tensor pinv_backward(const Tensor& grad, const Tensor& inverse, const Tensor& a, bool hermitian) {
  const Tensor result = sum_to(pinv_gradient(grad, inverse, a), a.sizes());
  return hermitian ? (result + mytorch::mH(result)) * 0.5 : result;
}

// The gradient of the residuals R = A X - B has no part through X, where it vanishes.
Tensors<2> lstsq_backward(const Tensor* grads, const Tensor& a, const Tensor& b,
                          std::optional<double> rcond, const Tensor& solution, const bool* wanted) {
  const bool vector = b.dim() == 1 || solution.dim() < std::max(a.dim(), b.dim());
  const auto as_matrix = [&](const Tensor& x) { return vector ? x.unsqueeze(-1) : x; };
  Tensor of_a, of_b;
  // The singular values belong to the matrices of `a`, the other results to a common batch.
  const auto add_to_a = [&](const Tensor& part) { of_a = sum_of(of_a, sum_to(part, a.sizes())); };
  if (grads[0].defined()) {
    const Tensor inverse = mytorch::linalg_pinv(a, std::nullopt, rcond, false);
    const Tensor g = as_matrix(grads[0]);
    if (wanted[0]) add_to_a(pinv_gradient(product_of(g, mytorch::mH(as_matrix(b))), inverse, a));
    if (wanted[1]) of_b = product_of(mytorch::mH(inverse), g);
  }
  if (grads[1].defined() && grads[1].numel() != 0) {
    const Tensor x = as_matrix(solution);
    const Tensor g = (product_of(a, x) - as_matrix(b)) * (2.0 * grads[1].unsqueeze(-2));
    if (wanted[0]) add_to_a(product_of(g, mytorch::mH(x)));
    if (wanted[1]) of_b = sum_of(of_b, -g);
  }
  if (grads[3].defined() && grads[3].numel() != 0 && wanted[0]) {
    const auto [u, s, vh] = mytorch::linalg_svd_forward(a, false, true);
    add_to_a(product_of(u * grads[3].unsqueeze(-2), vh));
  }
  Tensors<2> found;
  std::get<0>(found) = of_a;
  if (of_b.defined()) std::get<1>(found) = sum_to(vector ? of_b.squeeze(-1) : of_b, b.sizes());
  return found;
}

}  // namespace grads
}  // namespace mytorch
