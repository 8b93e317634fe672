// Gradients of views and of joining: where elements came from.
#include <algorithm>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/as_strided.h"
#include "mytorch/ops/constant_pad_nd.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/index_add.h"
#include "mytorch/ops/index_select.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/zeros.h"
#include "ops/geometry.h"
#include "ops/gradients.h"

namespace mytorch {
namespace {

Tensor zeros_for(const Tensor& grad, IntList sizes) {
  return mytorch::zeros(sizes, grad.dtype(), grad.device());
}

// Dimensions in the order of falling strides, those of size 1 left out; an element is at one place
// only if each stride steps over all that the smaller ones reach.
bool may_overlap(IntList sizes, IntList strides) {
  Dims order;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return false;
    if (sizes[d] > 1) order.push_back(static_cast<int64_t>(d));
  }
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return strides[a] < strides[b]; });
  int64_t reach = 0;  // the largest offset of the dimensions before
  for (const int64_t d : order) {
    if (strides[d] <= reach) return true;
    reach += (sizes[d] - 1) * strides[d];
  }
  return false;
}

// The offset past the last element.
int64_t extent(IntList sizes, IntList strides) {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    last += (sizes[d] - 1) * strides[d];
  }
  return last + 1;
}

}  // namespace

namespace composite {

Tensor select_backward(const Tensor& grad_output, IntList input_sizes, int64_t dim, int64_t index) {
  Tensor result = zeros_for(grad_output, input_sizes);
  result.select(dim, index).copy_(grad_output);
  return result;
}

Tensor slice_backward(const Tensor& grad_output, IntList input_sizes, int64_t dim,
                      std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  Tensor result = zeros_for(grad_output, input_sizes);
  result.slice(dim, start, end, step).copy_(grad_output);
  return result;
}

Tensor diagonal_backward(const Tensor& grad_output, IntList input_sizes, int64_t offset,
                         int64_t dim1, int64_t dim2) {
  Tensor result = zeros_for(grad_output, input_sizes);
  result.diagonal(offset, dim1, dim2).copy_(grad_output);
  return result;
}

Tensor unfold_backward(const Tensor& grad_in, IntList input_sizes, int64_t dim, int64_t size,
                       int64_t step) {
  const int64_t ndim = static_cast<int64_t>(input_sizes.size());
  if (ndim == 0) return size == 0 ? zeros_for(grad_in, input_sizes) : grad_in.reshape(IntList());
  dim = wrap_dim(dim, ndim, "unfold_backward");
  // Window w, element e lies at w * step + e.
  const int64_t windows = grad_in.sizes()[dim];
  const Tensor first = mytorch::arange(0, windows * step, step, kInt64, grad_in.device());
  const Tensor within = mytorch::arange(size, kInt64, grad_in.device());
  const Tensor index = (first.unsqueeze(1) + within).reshape(-1);
  Dims sizes = to_dims(input_sizes);
  sizes[dim] = windows * size;
  return mytorch::index_add(zeros_for(grad_in, input_sizes), dim, index,
                            grad_in.movedim(-1, dim + 1).reshape(as_list(sizes)));
}

}  // namespace composite

namespace grads {

Tensor permute_backward(const Tensor& grad, IntList dims) {
  Dims inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    inverse[wrap_dim(dims[i], grad.dim(), "permute")] = static_cast<int64_t>(i);
  }
  return grad.permute(as_list(inverse));
}

// As in ATen: the gradients of the view's elements are added up in a flat piece of storage that
// holds both, and read there as the input sees it. Elements of the input that share a place share
// its gradient.
Tensor as_strided_backward(const Tensor& grad, IntList input_sizes, IntList input_strides,
                           IntList size, IntList stride, int64_t offset) {
  const int64_t low = std::min<int64_t>(0, offset);
  const int64_t length =
      std::max(extent(input_sizes, input_strides) - low, offset - low + extent(size, stride));
  const Tensor places = mytorch::arange(length, kInt64, grad.device());
  const auto places_of = [&](IntList sizes, IntList strides, int64_t at) {
    return mytorch::as_strided(places, sizes, strides, at).reshape(-1);
  };
  const Tensor seen = places_of(size, stride, offset - low);
  const Tensor flat = mytorch::index_add(zeros_for(grad, length), 0, seen, grad.reshape(-1));
  const Tensor own = places_of(input_sizes, input_strides, -low);
  Tensor result = mytorch::index_select(flat, 0, own);
  if (may_overlap(input_sizes, input_strides)) {
    const Tensor count =
        mytorch::index_add(zeros_for(grad, length), 0, own, mytorch::ones_like(result));
    result = mytorch::div(result, mytorch::index_select(count, 0, own));
  }
  return result.reshape(input_sizes);
}

Tensor constant_pad_nd_backward(const Tensor& grad, IntList pad) {
  Dims opposite = to_dims(pad);
  for (int64_t& n : opposite) n = -n;
  return mytorch::constant_pad_nd(grad, as_list(opposite));
}

std::vector<Tensor> cat_backward(const Tensor& grad, const std::vector<Dims>& shapes, int64_t dim) {
  dim = wrap_dim(dim, grad.dim(), "cat");
  std::vector<Tensor> result;
  int64_t start = 0;
  for (const Dims& shape : shapes) {
    const bool passed_over = shape.size() == 1 && shape[0] == 0;
    const int64_t size = passed_over ? 0 : shape[dim];
    result.push_back(passed_over ? zeros_for(grad, 0) : grad.narrow(dim, start, size));
    start += size;
  }
  return result;
}

Tensor index_select_backward(const Tensor& grad, IntList shape, int64_t dim, const Tensor& index) {
  return mytorch::index_add(zeros_for(grad, shape), dim, index, grad);
}

}  // namespace grads
}  // namespace mytorch
