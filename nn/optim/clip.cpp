#include "mytorch/nn/optim/clip.h"

#include <cmath>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/clamp.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::nn::optim {
namespace {

std::vector<Tensor> gradients(TensorList parameters) {
  std::vector<Tensor> list;
  for (const Tensor& parameter : parameters) {
    if (Tensor grad = parameter.grad(); grad.defined()) list.push_back(std::move(grad));
  }
  return list;
}

// Norms of 16-bit gradients are computed in float32, in which their squares do not overflow.
ScalarType norm_type_of(ScalarType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

}  // namespace

Tensor clip_grad_norm_(TensorList parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  if (!(max_norm >= 0)) {
    fail(ErrorCode::kValue, "[clip_grad_norm_] max_norm is ", max_norm, ": give 0 or more");
  }
  NoGradGuard no_grad;
  const std::vector<Tensor> grads = gradients(parameters);
  if (grads.empty()) return zeros(IntList(nullptr, 0));
  const Device device = grads[0].device();
  ScalarType dtype = kFloat32;
  for (const Tensor& grad : grads) {
    if (norm_type_of(grad.dtype()) == kFloat64) dtype = kFloat64;
  }
  std::vector<Tensor> norms;
  norms.reserve(grads.size());
  for (const Tensor& grad : grads) {
    norms.push_back(to(linalg_vector_norm(grad, norm_type, {}, false, dtype), device));
  }
  Tensor total = norms.size() == 1 ? norms[0] : linalg_vector_norm(stack(norms), norm_type);
  if (error_if_nonfinite) {
    const double value = total.item<double>();
    if (!std::isfinite(value)) {
      fail(ErrorCode::kValue, "[clip_grad_norm_] the norm of order ", norm_type,
           " of the gradients is ", value, ", so they cannot be scaled to ", max_norm);
    }
  }
  // PyTorch adds 1e-6 so that a norm of zero does not cause a division by zero.
  const Tensor factor = clamp(max_norm / (total + 1e-6), {}, 1.0);
  for (const Tensor& grad : grads) grad.mul_(to(factor, grad.device()));
  return total;
}

void clip_grad_value_(TensorList parameters, double max_value) {
  if (!(max_value >= 0)) {
    fail(ErrorCode::kValue, "[clip_grad_value_] max_value is ", max_value, ": give 0 or more");
  }
  NoGradGuard no_grad;
  for (const Tensor& grad : gradients(parameters)) grad.clamp_(-max_value, max_value);
}

}  // namespace mytorch::nn::optim
