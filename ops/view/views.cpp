// Views: sizes, strides and offset. Nothing here allocates for tensors of up to six dimensions.
#include <algorithm>
#include <limits>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/index_add.h"
#include "mytorch/ops/ones_like.h"
#include "ops/geometry.h"
#include "ops/gradients.h"

namespace mytorch {
namespace {

// Returns the shape of the windows of `unfold`.
Dims unfolded_sizes(IntList sizes, int64_t dim, int64_t size, int64_t step, const char* op) {
  const int64_t ndim = static_cast<int64_t>(sizes.size());
  dim = wrap_dim(dim, ndim, op);
  const int64_t length = ndim == 0 ? 1 : sizes[dim];
  check_shape(size >= 0 && size <= length, op, "windows of ", size,
              " elements do not fit dimension ", dim, " of shape ", sizes);
  check_value(step > 0, op, "step ", step, " is not positive");
  Dims found = to_dims(sizes);
  if (ndim != 0) found[dim] = (length - size) / step + 1;
  found.push_back(size);
  return found;
}

}  // namespace

namespace views {

// A larger type takes the elements of one position, so that these must lie next to one another.
ViewSpec view_dtype(const Tensor& self, ScalarType dtype) {
  const char* const op = "view";
  const int64_t from = self.element_size(), to = element_size(dtype);
  ViewSpec view{to_dims(self.sizes()), to_dims(self.strides()), 0, static_cast<int8_t>(dtype)};
  if (dtype == self.dtype()) return view;
  // Kernels rely on it.
  check_value(dtype != kBool, op, "the bytes of ", self.dtype(),
              " need not be 0 and 1, as those of bool: compare instead, x.ne(0)");
  if (from == to) return view;
  const int64_t last = self.dim() - 1;
  check_shape(last >= 0, op, "a tensor without dimensions has one element of ", from,
              " bytes, not of ", to, ": use unsqueeze(0)");
  check_shape(self.stride(-1) == 1, op, "the last dimension has stride ", self.stride(-1),
              ", not 1, which elements of ", to, " instead of ", from,
              " bytes need: use contiguous()");
  if (from > to) {
    const int64_t ratio = from / to;
    view.sizes[last] *= ratio;
    for (int64_t i = 0; i < last; ++i) view.strides[i] *= ratio;
    return view;
  }
  const int64_t ratio = to / from;
  check_shape(view.sizes[last] % ratio == 0, op, "the last size of ", self.sizes(),
              " is no multiple of ", ratio, ", the elements of ", self.dtype(), " in one of ",
              dtype);
  const bool aligned =
      reinterpret_cast<uintptr_t>(self.raw_data()) % static_cast<uintptr_t>(to) == 0;
  check_shape(self.storage_offset() % ratio == 0 && aligned, op, "the first element, at offset ",
              self.storage_offset(), ", is not aligned to the ", to, " bytes of ", dtype,
              ": use clone()");
  view.sizes[last] /= ratio;
  for (int64_t i = 0; i < last; ++i) {
    check_shape(view.strides[i] % ratio == 0, op, "the strides ", self.strides(),
                " but the last are not all multiples of ", ratio, ": use contiguous()");
    view.strides[i] /= ratio;
  }
  return view;
}
namespace {

ViewSpec same(const Tensor& self) { return {to_dims(self.sizes()), to_dims(self.strides()), 0}; }

void remove_dim(ViewSpec& spec, int64_t dim) {
  spec.sizes.erase(spec.sizes.begin() + dim);
  spec.strides.erase(spec.strides.begin() + dim);
}

}  // namespace

ViewSpec view(const Tensor& self, IntList size) {
  if (self.is_contiguous()) {
    // A contiguous tensor can be viewed in any shape with the same number of elements.
    ViewSpec spec{Dims(size.begin(), size.end()), Dims(size.size()), 0};
    int64_t* const strides = spec.strides.data();
    int64_t elements = 1;
    for (size_t i = size.size(); i-- > 0;) {
      if (size[i] <= 0) elements = -1;
      if (elements < 0) break;
      strides[i] = elements;
      if (__builtin_mul_overflow(elements, size[i], &elements)) elements = -1;
    }
    if (elements == self.numel()) return spec;
  }
  Dims sizes = geometry::infer_shape(size, self.numel(), "view");
  std::optional<Dims> strides =
      geometry::view_strides(self.sizes(), self.strides(), as_list(sizes));
  check_shape(strides.has_value(), "view", "a tensor of shape ", self.sizes(), " and strides ",
              self.strides(), " cannot be seen as ", as_list(sizes),
              " without a copy: use reshape");
  return {std::move(sizes), *std::move(strides), 0};
}

ViewSpec alias(const Tensor& self) { return same(self); }

ViewSpec transpose(const Tensor& self, int64_t dim0, int64_t dim1) {
  const int64_t ndim = self.dim();
  dim0 = wrap_dim(dim0, ndim, "transpose");
  dim1 = wrap_dim(dim1, ndim, "transpose");
  ViewSpec spec = same(self);
  if (ndim == 0) return spec;
  std::swap(spec.sizes[dim0], spec.sizes[dim1]);
  std::swap(spec.strides[dim0], spec.strides[dim1]);
  return spec;
}

ViewSpec permute(const Tensor& self, IntList dims) {
  const int64_t ndim = self.dim();
  check_shape(static_cast<int64_t>(dims.size()) == ndim, "permute", "dims ", dims,
              " does not name the ", ndim, " dimensions of shape ", self.sizes(), " once each");
  ViewSpec spec;
  for (const int64_t dim : geometry::wrap_dims(dims, ndim, "permute")) {
    spec.sizes.push_back(self.sizes()[dim]);
    spec.strides.push_back(self.strides()[dim]);
  }
  return spec;
}

ViewSpec squeeze(const Tensor& self) {
  ViewSpec spec;
  for (size_t i = 0; i < self.sizes().size(); ++i) {
    if (self.sizes()[i] == 1) continue;
    spec.sizes.push_back(self.sizes()[i]);
    spec.strides.push_back(self.strides()[i]);
  }
  return spec;
}

ViewSpec squeeze(const Tensor& self, int64_t dim) {
  dim = wrap_dim(dim, self.dim(), "squeeze");
  ViewSpec spec = same(self);
  if (self.dim() > 0 && spec.sizes[dim] == 1) remove_dim(spec, dim);
  return spec;
}

ViewSpec squeeze(const Tensor& self, IntList dim) {
  Dims dims = geometry::wrap_dims(dim, self.dim(), "squeeze");
  std::sort(dims.rbegin(), dims.rend());
  ViewSpec spec = same(self);
  if (self.dim() == 0) return spec;
  for (const int64_t d : dims) {
    if (spec.sizes[d] == 1) remove_dim(spec, d);
  }
  return spec;
}

ViewSpec unsqueeze(const Tensor& self, int64_t dim) {
  dim = wrap_dim(dim, self.dim() + 1, "unsqueeze");
  ViewSpec spec = same(self);
  const int64_t stride = dim < self.dim() ? spec.sizes[dim] * spec.strides[dim] : 1;
  spec.sizes.insert(spec.sizes.begin() + dim, 1);
  spec.strides.insert(spec.strides.begin() + dim, stride);
  return spec;
}

ViewSpec expand(const Tensor& self, IntList size) {
  const int64_t lead = static_cast<int64_t>(size.size()) - self.dim();
  check_shape(lead >= 0, "expand", "size ", size,
              " has fewer dimensions than the tensor, of shape ", self.sizes());
  ViewSpec spec{to_dims(size), Dims(size.size(), 0), 0};
  for (int64_t i = 0; i < static_cast<int64_t>(size.size()); ++i) {
    if (i < lead) {
      check_shape(size[i] >= 0, "expand", "size ", size, " has ", size[i],
                  " in a new dimension: -1 keeps only a size that exists");
      continue;
    }
    const int64_t own = self.sizes()[i - lead];
    if (size[i] == -1 || size[i] == own) {
      spec.sizes[i] = own;
      spec.strides[i] = self.strides()[i - lead];
    } else if (own != 1 || size[i] < 0) {
      fail(ErrorCode::kShape, "[expand] shape ", shape_str(self.sizes()), " does not expand to ",
           shape_str(size), ": size ", own, " in dimension ", i - lead, " cannot become ", size[i]);
    }
  }
  return spec;
}

ViewSpec select(const Tensor& self, int64_t dim, int64_t index) {
  check_shape(self.dim() != 0, "select",
              "a 0-dim tensor has no dimension to select from: use item()");
  dim = wrap_dim(dim, self.dim(), "select");
  ViewSpec spec = same(self);
  const int64_t size = spec.sizes[dim];
  check_value(index >= -size && index < size, "select", "index ", index,
              " is out of range for dimension ", dim, " of shape ", self.sizes());
  spec.offset = (index < 0 ? index + size : index) * spec.strides[dim];
  remove_dim(spec, dim);
  return spec;
}

ViewSpec slice(const Tensor& self, int64_t dim, std::optional<int64_t> start,
               std::optional<int64_t> end, int64_t step) {
  check_shape(self.dim() != 0, "slice", "a 0-dim tensor cannot be sliced");
  dim = wrap_dim(dim, self.dim(), "slice");
  check_value(step > 0, "slice", "step ", step, " is not positive");
  ViewSpec spec = same(self);
  const int64_t size = spec.sizes[dim];
  // Bounds outside of the dimension are clipped, as in Python.
  const auto bound = [size](int64_t value) {
    return std::clamp<int64_t>(value < 0 ? value + size : value, 0, size);
  };
  const int64_t first = bound(start.value_or(0));
  const int64_t last = std::max(first, bound(end.value_or(std::numeric_limits<int64_t>::max())));
  spec.sizes[dim] = (last - first) / step + ((last - first) % step != 0);
  spec.offset = first * spec.strides[dim];
  // An unused stride may have any value; this one cannot overflow.
  if (spec.sizes[dim] > 1) spec.strides[dim] *= step;
  return spec;
}

ViewSpec diagonal(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  const int64_t ndim = self.dim();
  check_shape(ndim >= 2, "diagonal", "shape ", self.sizes(), " has fewer than two dimensions");
  dim1 = wrap_dim(dim1, ndim, "diagonal");
  dim2 = wrap_dim(dim2, ndim, "diagonal");
  check_shape(dim1 != dim2, "diagonal", "dim1 and dim2 are both dimension ", dim1);
  ViewSpec spec = same(self);
  const int64_t rows = spec.sizes[dim1], columns = spec.sizes[dim2];
  const int64_t row_stride = spec.strides[dim1], column_stride = spec.strides[dim2];
  int64_t length = 0;
  if (offset >= 0) {
    length = offset < columns ? std::min(rows, columns - offset) : 0;
    if (length > 0) spec.offset = offset * column_stride;
  } else {
    length = offset > -rows ? std::min(rows + offset, columns) : 0;
    if (length > 0) spec.offset = -offset * row_stride;
  }
  remove_dim(spec, std::max(dim1, dim2));
  remove_dim(spec, std::min(dim1, dim2));
  spec.sizes.push_back(length);
  spec.strides.push_back(row_stride + column_stride);
  return spec;
}

ViewSpec unfold(const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  ViewSpec spec = same(self);
  spec.sizes = unfolded_sizes(self.sizes(), dimension, size, step, "unfold");
  if (self.dim() == 0) {
    spec.strides.push_back(1);
    return spec;
  }
  dimension = wrap_dim(dimension, self.dim(), "unfold");
  const int64_t stride = spec.strides[dimension];
  if (spec.sizes[dimension] > 1) spec.strides[dimension] = stride * step;
  spec.strides.push_back(stride);
  return spec;
}

ViewSpec as_strided_relative(const Tensor& self, IntList size, IntList stride, int64_t offset) {
  check_shape(size.size() == stride.size(), "as_strided", "size ", size, " and stride ", stride,
              " have different lengths");
  bool empty = false;
  for (size_t i = 0; i < size.size(); ++i) {
    check_shape(size[i] >= 0 && stride[i] >= 0, "as_strided", "size ", size, " or stride ", stride,
                " is negative");
    empty = empty || size[i] == 0;
  }
  Wide first = Wide{self.storage_offset()} + offset;
  const auto capacity = static_cast<int64_t>(self.impl()->storage->bytes) / self.element_size();
  if (empty && first > capacity) {  // A view of no elements may lie anywhere: it begins at the end.
    first = capacity;
    offset = capacity - self.storage_offset();
  }
  Wide end = first + (empty ? 0 : 1);
  for (size_t i = 0; i < size.size() && !empty && end <= capacity; ++i) {
    end += Wide{size[i] - 1} * stride[i];
  }
  check_shape(first >= 0 && end <= capacity, "as_strided", "size ", size, ", stride ", stride,
              " and relative offset ", offset, " reach outside of the storage, of ", capacity,
              " elements");
  return {to_dims(size), to_dims(stride), offset};
}

}  // namespace views

namespace {

// Returns whether two elements may share memory. None do if each stride exceeds the extent of all
// smaller ones; dimensions of size 1 do not matter.
bool may_overlap(IntList sizes, IntList strides) {
  Dims order;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return false;
    if (sizes[d] > 1) order.push_back(static_cast<int64_t>(d));
  }
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return strides[a] < strides[b]; });
  int64_t reach = 0;  // the largest offset of the dimensions with smaller strides
  for (const int64_t d : order) {
    if (strides[d] <= reach) return true;
    reach += (sizes[d] - 1) * strides[d];
  }
  return false;
}

// Returns the offset past the last element.
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
  Tensor result = grads::zeros_like_shape(grad_output, input_sizes);
  result.select(dim, index).copy_(grad_output);
  return result;
}

Tensor slice_backward(const Tensor& grad_output, IntList input_sizes, int64_t dim,
                      std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  Tensor result = grads::zeros_like_shape(grad_output, input_sizes);
  result.slice(dim, start, end, step).copy_(grad_output);
  return result;
}

Tensor diagonal_backward(const Tensor& grad_output, IntList input_sizes, int64_t offset,
                         int64_t dim1, int64_t dim2) {
  Tensor result = grads::zeros_like_shape(grad_output, input_sizes);
  result.diagonal(offset, dim1, dim2).copy_(grad_output);
  return result;
}

Tensor unfold_backward(const Tensor& grad_in, IntList input_sizes, int64_t dim, int64_t size,
                       int64_t step) {
  const char* op = "unfold_backward";
  const int64_t ndim = static_cast<int64_t>(input_sizes.size());
  const Dims expected = unfolded_sizes(input_sizes, dim, size, step, op);
  check_shape(grad_in.sizes() == as_list(expected), op, "grad_in has shape ", grad_in.sizes(),
              ": windows of ", size, " elements at a distance of ", step, " in dimension ", dim,
              " of input_sizes ", input_sizes, " have ", as_list(expected));
  if (ndim == 0)
    return size == 0 ? grads::zeros_like_shape(grad_in, input_sizes)
                     : grad_in.reshape(IntList()).clone();
  dim = wrap_dim(dim, ndim, op);
  // Element e of window w is at w * step + e.
  const int64_t windows = grad_in.sizes()[dim];
  const Tensor first = mytorch::arange(0, checked(Wide{windows} * step, op, "the size"), step,
                                       kInt64, grad_in.device());
  const Tensor within = mytorch::arange(size, kInt64, grad_in.device());
  const Tensor index = (first.unsqueeze(1) + within).reshape(-1);
  Dims sizes = to_dims(input_sizes);
  sizes[dim] = checked(Wide{windows} * size, op, "the size");
  return mytorch::index_add(grads::zeros_like_shape(grad_in, input_sizes), dim, index,
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

// As in ATen, adds the gradients of the view's elements in a flat buffer that covers both tensors,
// then reads that buffer as the input's view of it. Elements of the input that share memory share
// the gradient.
Tensor as_strided_backward(const Tensor& grad, IntList input_sizes, IntList input_strides,
                           IntList size, IntList stride, int64_t offset) {
  if (grad.numel() == 0) return grads::zeros_like_shape(grad, input_sizes);
  const int64_t low = std::min<int64_t>(0, offset);
  const int64_t length =
      std::max(extent(input_sizes, input_strides) - low, offset - low + extent(size, stride));
  const Tensor places = mytorch::arange(length, kInt64, grad.device());
  const auto places_of = [&](IntList sizes, IntList strides, int64_t at) {
    return places.as_strided(sizes, strides, at).reshape(-1);
  };
  const Tensor seen = places_of(size, stride, offset - low);
  const Tensor flat =
      mytorch::index_add(grads::zeros_like_shape(grad, length), 0, seen, grad.reshape(-1));
  const Tensor own = places_of(input_sizes, input_strides, -low);
  Tensor result = flat.index_select(0, own);
  if (may_overlap(input_sizes, input_strides)) {
    const Tensor count = mytorch::index_add(grads::zeros_like_shape(grad, length), 0, own,
                                            mytorch::ones_like(result));
    result = result / count.index_select(0, own);
  }
  return result.reshape(input_sizes);
}

}  // namespace grads
}  // namespace mytorch
