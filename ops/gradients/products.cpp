// Gradients of matrix products, convolutions and pooling.
#include "core/types/dims.h"
#include "mytorch/ops/convolution.h"
#include "mytorch/ops/gather.h"
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

Tensor convolution_like(const Tensor& input, const Tensor& weight, IntList stride, IntList padding,
                        IntList dilation, bool transposed, IntList output_padding, int64_t groups) {
  return mytorch::convolution(input, weight, {}, stride, padding, dilation, transposed,
                              output_padding, groups);
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

}  // namespace mytorch::grads
