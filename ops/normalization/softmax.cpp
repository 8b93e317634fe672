// softmax and log_softmax. 16-bit types compute in float32.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/creation.h"
#include "ops/gradients.h"
#include "ops/precision.h"

namespace mytorch {
namespace shape {
namespace {

TensorSpec like_floating(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype,
                         const char* op) {
  wrap_dim(dim, self.dim(), op);
  const ScalarType type = dtype.value_or(self.dtype());
  check_type(is_floating_point(type), op, "gives fractions, which ", type,
             " cannot hold: give a floating dtype");
  TensorSpec spec = spec_like(self);
  spec.dtype = type;
  return spec;
}

TensorSpec like_both(const Tensor& grad_output, const Tensor& output, int64_t dim, const char* op) {
  check_shape(grad_output.sizes() == output.sizes(), op, "grad_output has shape ",
              grad_output.sizes(), ", but output has shape ", output.sizes());
  TensorSpec spec = like_floating(output, dim, std::nullopt, op);
  spec.strides = spec_like(grad_output).strides;  // the first operand determines them
  return spec;
}

}  // namespace

TensorSpec softmax(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  return like_floating(self, dim, dtype, "softmax");
}

TensorSpec log_softmax(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  return like_floating(self, dim, dtype, "log_softmax");
}

TensorSpec softmax_backward(const Tensor& grad_output, const Tensor& output, int64_t dim) {
  return like_both(grad_output, output, dim, "softmax_backward");
}

TensorSpec log_softmax_backward(const Tensor& grad_output, const Tensor& output, int64_t dim) {
  return like_both(grad_output, output, dim, "log_softmax_backward");
}

}  // namespace shape

namespace composite {

// Subtracting the maximum keeps exp from overflowing; it cancels in the quotient.
Tensor softmax(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  const ScalarType type = dtype.value_or(self.dtype());
  if (self.numel() == 0) return mytorch::zeros_like(self, type);
  const Tensor x = widened(self.to(type));
  const Tensor e = mytorch::exp(x - x.amax(dim, true));
  return (e / e.sum(dim, true)).to(type);
}

Tensor log_softmax(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  const ScalarType type = dtype.value_or(self.dtype());
  if (self.numel() == 0) return mytorch::zeros_like(self, type);
  const Tensor x = widened(self.to(type));
  const Tensor shifted = x - x.amax(dim, true);
  return (shifted - mytorch::log(mytorch::sum(shifted.exp(), dim, true))).to(type);
}

Tensor softmax_backward(const Tensor& grad_output, const Tensor& output, int64_t dim) {
  const Tensor weighted = widened(grad_output) * widened(output);
  const Tensor share = widened(output) * weighted.sum(dim, true);
  return (weighted - share).to(output.dtype());
}

Tensor log_softmax_backward(const Tensor& grad_output, const Tensor& output, int64_t dim) {
  const Tensor grad = widened(grad_output);
  const Tensor share = mytorch::exp(widened(output)) * grad.sum(dim, true);
  return (grad - share).to(output.dtype());
}

}  // namespace composite

namespace grads {

Tensor softmax_backward_output(const Tensor& grad, const Tensor& grad_output, const Tensor& output,
                               int64_t dim) {
  // The derivative of output * (g - sum(g * output)) with respect to output.
  const Tensor v = widened(grad), g = widened(grad_output), y = widened(output);
  const Tensor inner = g - mytorch::sum(g * y, dim, true);
  return v * inner - g * mytorch::sum(v * y, dim, true);
}

Tensor log_softmax_backward_grad(const Tensor& grad, const Tensor& output, int64_t dim) {
  const Tensor v = widened(grad);
  return v - mytorch::sum(v * mytorch::exp(widened(output)), dim, true);
}

Tensor log_softmax_backward_output(const Tensor& grad, const Tensor& grad_output,
                                   const Tensor& output, int64_t dim) {
  return -(widened(grad) * mytorch::exp(widened(output)) *
           mytorch::sum(widened(grad_output), dim, true));
}

}  // namespace grads
}  // namespace mytorch
