// Gradients of matrix products, convolutions and pooling.
#include "core/types/dims.h"
#include "dispatcher/frame/layout.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/convolution.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/gelu_grad.h"
#include "mytorch/ops/linear.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/mv.h"
#include "mytorch/ops/sum.h"
#include "ops/gradients.h"

namespace mytorch::grads {

Tensor maybe_multiply(const Tensor& x, const Scalar& factor) {
  return factor == Scalar(1) ? x : mytorch::mul(x, factor);
}

namespace {

// All dimensions but the last as one, also where nothing is left to tell how many.
Tensor rows(const Tensor& x, int64_t width) {
  int64_t n = 1;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) n *= x.sizes()[d];
  return x.reshape({n, width});
}

}  // namespace

Tensor linear_backward_input(const Tensor& grad, const Tensor& weight) {
  if (weight.dim() == 1) return mytorch::mul(grad.unsqueeze(-1), weight);
  Dims sizes = to_dims(grad.sizes());
  sizes.back() = weight.sizes()[1];
  return mytorch::mm(rows(grad, weight.sizes()[0]), weight).reshape(as_list(sizes));
}

Tensor linear_backward_weight(const Tensor& grad, const Tensor& input, IntList weight_shape) {
  const Tensor in = rows(input, weight_shape.back());
  if (weight_shape.size() == 1) return mytorch::mv(in.transpose(0, 1), grad.reshape(-1));
  return mytorch::mm(rows(grad, weight_shape[0]).transpose(0, 1), in);
}

std::tuple<Tensor, Tensor, Tensor> linear_gelu_gradient(const Tensor* grads, const Tensor& input,
                                                        const Tensor& weight, const Tensor& bias,
                                                        const Tensor& product, Str approximate,
                                                        bool want_input, bool want_weight,
                                                        bool want_bias) {
  Tensor grad;  // with respect to the product
  if (grads[0].defined()) {
    const bool kept = product.numel() != 0 || grads[0].numel() == 0;
    const Tensor at = kept ? product : mytorch::linear(input, weight, bias);
    grad = mytorch::gelu_grad(grads[0], at.view(grads[0].sizes()), approximate);
  }
  if (grads[1].defined() && product.numel() != 0) {
    grad = grad.defined() ? mytorch::add(grad, grads[1]) : grads[1];
  }
  std::tuple<Tensor, Tensor, Tensor> result;
  if (!grad.defined()) return result;
  if (want_input) std::get<0>(result) = linear_backward_input(grad, weight);
  if (want_weight) std::get<1>(result) = linear_backward_weight(grad, input, weight.sizes());
  if (want_bias) std::get<2>(result) = sum_to(grad, bias.sizes());
  return result;
}

Tensor convolution_like(const Tensor& input, const Tensor& weight, IntList stride, IntList padding,
                        IntList dilation, bool transposed, IntList output_padding, int64_t groups) {
  return mytorch::convolution(input, weight, {}, stride, padding, dilation, transposed,
                              output_padding, groups);
}

OptionalIntList strides_of_layout(const Tensor& tensor) {
  if (tensor.is_contiguous()) return {};
  return tensor.strides();
}

Tensor sum_to_channel(const Tensor& grad) {
  Dims dims;
  for (int64_t d = 0; d < grad.dim(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  return mytorch::sum(grad, as_list(dims));
}

Tensor max_pool2d_gather(const Tensor& grad, const Tensor& indices) {
  return mytorch::gather(grad.flatten(-2), -1, indices.flatten(-2)).reshape(indices.sizes());
}

Tensor in_layout_of(const Tensor& grad, IntList input_shape, IntList input_strides) {
  if (!is_channels_last(input_shape, input_strides) || is_channels_last(grad)) return grad;
  Dims to_last = {0}, sizes = {grad.size(0)}, back = {0, grad.dim() - 1};
  for (int64_t d = 2; d < grad.dim(); ++d) {
    to_last.push_back(d);
    sizes.push_back(grad.size(d));
    back.push_back(d - 1);
  }
  to_last.push_back(1);
  sizes.push_back(grad.size(1));
  // The view has strides of its own also in dimensions of size 1, which tell the layout.
  return grad.permute(as_list(to_last)).contiguous().view(as_list(sizes)).permute(as_list(back));
}

}  // namespace mytorch::grads
