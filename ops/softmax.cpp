// softmax and log_softmax. 16-bit types compute in float32.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/creation.h"
#include "ops/precision.h"

namespace mytorch {
namespace shape {
namespace {

TensorSpec like_floating(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype,
                         const char* op) {
  wrap_dim(dim, self.dim(), op);
  const ScalarType type = dtype.value_or(self.dtype());
  if (!is_floating_point(type)) {
    fail(ErrorCode::kType, "[", op, "] gives fractions, which ", dtype_name(type),
         " cannot hold: give a floating dtype");
  }
  TensorSpec spec = spec_like(self);
  spec.dtype = type;
  return spec;
}

TensorSpec like_both(const Tensor& grad_output, const Tensor& output, int64_t dim, const char* op) {
  if (!(grad_output.sizes() == output.sizes())) {
    fail(ErrorCode::kShape, "[", op, "] grad_output has shape ", shape_str(grad_output.sizes()),
         ", but output has shape ", shape_str(output.sizes()));
  }
  TensorSpec spec = like_floating(output, dim, std::nullopt, op);
  spec.strides = spec_like(grad_output).strides;  // of two operands the first decides
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
  const Tensor e = mytorch::exp(mytorch::sub(x, mytorch::amax(x, dim, true)));
  return mytorch::div(e, mytorch::sum(e, dim, true)).to(type);
}

Tensor log_softmax(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  const ScalarType type = dtype.value_or(self.dtype());
  if (self.numel() == 0) return mytorch::zeros_like(self, type);
  const Tensor x = widened(self.to(type));
  const Tensor shifted = mytorch::sub(x, mytorch::amax(x, dim, true));
  return mytorch::sub(shifted, mytorch::log(mytorch::sum(mytorch::exp(shifted), dim, true)))
      .to(type);
}

Tensor softmax_backward(const Tensor& grad_output, const Tensor& output, int64_t dim) {
  const Tensor weighted = mytorch::mul(widened(grad_output), widened(output));
  const Tensor share = mytorch::mul(widened(output), mytorch::sum(weighted, dim, true));
  return mytorch::sub(weighted, share).to(output.dtype());
}

Tensor log_softmax_backward(const Tensor& grad_output, const Tensor& output, int64_t dim) {
  const Tensor grad = widened(grad_output);
  const Tensor share = mytorch::mul(mytorch::exp(widened(output)), mytorch::sum(grad, dim, true));
  return mytorch::sub(grad, share).to(output.dtype());
}

}  // namespace composite
}  // namespace mytorch
