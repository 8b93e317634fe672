// What the kinds of normalization share.
#include "ops/normalization/normalization.h"

#include <algorithm>
#include <cmath>

#include "mytorch/ops/full.h"
#include "mytorch/ops/hypot.h"
#include "ops/precision.h"

namespace mytorch::normalization {

void check_trailing(const Tensor& input, IntList normalized_shape, const char* op) {
  const size_t n = normalized_shape.size();
  const IntList sizes = input.sizes();
  check_shape(n != 0 && sizes.size() >= n &&
                  IntList(sizes.data() + sizes.size() - n, n) == normalized_shape,
              op, "input of shape ", sizes, " does not end in normalized_shape ", normalized_shape);
}

void check_parameters(std::initializer_list<std::pair<const char*, const Tensor&>> parameters,
                      IntList sizes, const Tensor& input, const char* op) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.defined()) continue;
    check_shape(parameter.sizes() == sizes, op, name, " has shape ", parameter.sizes(),
                ", but input of shape ", input.sizes(), " takes ", sizes);
    check_type(parameter.dtype() == input.dtype() || parameter.dtype() == wide_type(input.dtype()),
               op, name, " is ", parameter.dtype(), ", but input is ", input.dtype());
  }
}

int64_t check_channels(const Tensor& input, const char* op) {
  check_floating(input, "input", op);
  check_shape(input.dim() >= 2, op, "input has shape ", input.sizes(), ": it must be (N, C, ...)");
  return input.sizes()[1];
}

void check_residual(const Tensor& input, const Tensor& residual, const char* op) {
  check_shape(input.sizes() == residual.sizes(), op, "input has shape ", input.sizes(),
              " and residual ", residual.sizes(), ": they must be equal");
  check_same_type(input, "input", residual, "residual", op);
}

void check_grad_sum(const Tensor& grad_sum, const Tensor& sum, const char* op) {
  check_shape(grad_sum.sizes() == sum.sizes(), op, "grad_sum has shape ", grad_sum.sizes(),
              ", but sum has shape ", sum.sizes());
  check_same_type(grad_sum, "grad_sum", sum, "sum", op);
}

void check_statistics(std::initializer_list<std::pair<const char*, const Tensor&>> statistics,
                      const TensorSpec& expected, const Tensor& input, const char* op) {
  for (const auto& [name, each] : statistics) {
    check_shape(each.sizes() == as_list(expected.sizes), op, name, " has shape ", each.sizes(),
                ", but input of shape ", input.sizes(), " takes ", as_list(expected.sizes));
    check_type(each.dtype() == expected.dtype, op, name, " is ", each.dtype(),
               ", but for input of ", input.dtype(), " it is ", expected.dtype);
  }
}

TensorSpec row_statistics(const Tensor& input, IntList normalized_shape) {
  Dims sizes = to_dims(input.sizes());
  std::fill(sizes.end() - normalized_shape.size(), sizes.end(), 1);
  return like(input, std::move(sizes), wide_type(input.dtype()));
}

Tensor affine(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (weight.defined() && bias.defined()) return bias.addcmul(x, weight);
  if (weight.defined()) return x * weight;
  return bias.defined() ? x + bias : x;
}

Tensor per_channel(const Tensor& x, int64_t ndim) {
  if (!x.defined()) return x;
  Dims sizes(ndim, 1);
  sizes[1] = x.numel();
  return x.reshape(as_list(sizes));
}

Tensor affine_by_channel(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Tensor& input) {
  return affine(x, per_channel(widened(weight), x.dim()), per_channel(widened(bias), x.dim()))
      .to(input.dtype());
}

Dims last_dims(IntList shape) {
  Dims dims;
  for (int64_t d = -static_cast<int64_t>(shape.size()); d < 0; ++d) dims.push_back(d);
  return dims;
}

Tensor inverse_deviation(const Tensor& deviation, double eps) {
  const Tensor least =
      mytorch::full(IntList(), std::sqrt(eps), deviation.dtype(), deviation.device());
  return mytorch::hypot(deviation, least).reciprocal();
}

}  // namespace mytorch::normalization
