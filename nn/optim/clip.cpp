#include "mytorch/nn/optim/clip.h"

#include <cmath>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/clamp.h"
#include "mytorch/ops/clip_grads_with_norm_.h"
#include "mytorch/ops/get_total_norm.h"
#include "mytorch/ops/view_as_real.h"
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

}  // namespace

GradientNorm clip_grad_norm_(TensorList parameters, double max_norm, double norm_type,
                             bool error_if_nonfinite) {
  if (!(max_norm >= 0)) {
    fail(ErrorCode::kValue, "[clip_grad_norm_] max_norm is ", max_norm, ": give 0 or more");
  }
  NoGradGuard no_grad;
  std::vector<Tensor> grads = gradients(parameters);
  if (grads.empty()) return GradientNorm(zeros(IntList(nullptr, 0)));
  for (Tensor& grad : grads) {
    if (grad.is_complex() && norm_type == 2) grad = view_as_real(grad);  // of the same norm
  }
  Tensor total = mytorch::get_total_norm(grads, norm_type);
  if (error_if_nonfinite) {
    const double value = total.item<double>();
    if (!std::isfinite(value)) {
      fail(ErrorCode::kValue, "[clip_grad_norm_] the norm of order ", norm_type,
           " of the gradients is ", value, ", so they cannot be scaled to ", max_norm);
    }
  }
  mytorch::clip_grads_with_norm_(grads, total, max_norm);
  return GradientNorm(std::move(total));
}

void clip_grad_value_(TensorList parameters, double max_value) {
  if (!(max_value >= 0)) {
    fail(ErrorCode::kValue, "[clip_grad_value_] max_value is ", max_value, ": give 0 or more");
  }
  NoGradGuard no_grad;
  for (const Tensor& grad : gradients(parameters)) grad.clamp_(-max_value, max_value);
}

}  // namespace mytorch::nn::optim
