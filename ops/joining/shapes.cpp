// Joining, repeating and reordering.
#include <algorithm>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"
#include "ops/composites.h"
#include "ops/geometry.h"
#include "ops/gradients.h"

namespace mytorch {
namespace shape {
namespace {

// ATen skips empty 1-dim tensors, which often start a loop of appends.
bool is_passed_over(const Tensor& tensor) { return tensor.dim() == 1 && tensor.sizes()[0] == 0; }

}  // namespace

TensorSpec cat(TensorList tensors, int64_t dim) {
  check_value(!tensors.empty(), "cat", "the list of tensors is empty");
  const Tensor* first = nullptr;
  ScalarType dtype = tensors[0].dtype();
  for (const Tensor& tensor : tensors) {
    check_shape(tensor.dim() != 0, "cat", "a 0-dim tensor cannot be joined: use stack");
    dtype = promote_types(dtype, tensor.dtype());
    if (first == nullptr && !is_passed_over(tensor)) first = &tensor;
  }
  if (first == nullptr) {
    wrap_dim(dim, 1, "cat");
    return {Dims{0}, dtype, tensors[0].device(), {}};
  }
  dim = wrap_dim(dim, first->dim(), "cat");
  Dims sizes = to_dims(first->sizes());
  sizes[dim] = 0;
  for (const Tensor& tensor : tensors) {
    if (is_passed_over(tensor)) continue;
    bool fits = tensor.dim() == first->dim();
    for (int64_t d = 0; fits && d < first->dim(); ++d) {
      fits = d == dim || tensor.sizes()[d] == sizes[d];
    }
    check_shape(fits, "cat", "shapes ", first->sizes(), " and ", tensor.sizes(),
                " differ outside of dimension ", dim);
    sizes[dim] = checked(Wide{sizes[dim]} + tensor.sizes()[dim], "cat", "the size");
  }
  return {std::move(sizes), dtype, first->device(), {}};
}

}  // namespace shape

namespace composite {

Tensor diagonal_numbers(const Tensor& self, const char* op) {
  check_shape(self.dim() >= 2, op, "shape ", self.sizes(), " has fewer than two dimensions");
  const Tensor rows = mytorch::arange(self.size(-2), kInt64, self.device());
  const Tensor columns = mytorch::arange(self.size(-1), kInt64, self.device());
  return columns - rows.unsqueeze(1);
}

Tensor stack(TensorList tensors, int64_t dim) {
  check_value(!tensors.empty(), "stack", "the list of tensors is empty");
  dim = wrap_dim(dim, tensors[0].dim() + 1, "stack");
  std::vector<Tensor> raised;
  raised.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    check_shape(tensor.sizes() == tensors[0].sizes(), "stack", "shapes ", tensors[0].sizes(),
                " and ", tensor.sizes(), " differ");
    raised.push_back(tensor.unsqueeze(dim));
  }
  return mytorch::cat(raised, dim);
}

Tensor hstack(TensorList tensors) {
  check_value(!tensors.empty(), "hstack", "the list of tensors is empty");
  std::vector<Tensor> raised;
  for (const Tensor& tensor : tensors) {
    raised.push_back(tensor.dim() == 0 ? tensor.reshape(1) : tensor);
  }
  return mytorch::cat(raised, raised[0].dim() == 1 ? 0 : 1);
}

Tensor vstack(TensorList tensors) {
  check_value(!tensors.empty(), "vstack", "the list of tensors is empty");
  std::vector<Tensor> raised;
  for (const Tensor& tensor : tensors) {
    raised.push_back(tensor.dim() == 0   ? tensor.reshape({1, 1})
                     : tensor.dim() == 1 ? tensor.unsqueeze(0)
                                         : tensor);
  }
  return mytorch::cat(raised, 0);
}

Tensor repeat(const Tensor& self, IntList repeats) {
  const int64_t lead = static_cast<int64_t>(repeats.size()) - self.dim();
  check_shape(lead >= 0, "repeat", "repeats ", repeats, " has fewer numbers than shape ",
              self.sizes(), " has dimensions");
  // (s0, s1) -> (1, s0, 1, s1) -> (r0, s0, r1, s1) -> (r0 * s0, r1 * s1)
  Dims single, expanded, sizes;
  for (int64_t i = 0; i < static_cast<int64_t>(repeats.size()); ++i) {
    check_value(repeats[i] >= 0, "repeat", "repeats ", repeats, " has the negative ", repeats[i]);
    const int64_t size = i < lead ? 1 : self.sizes()[i - lead];
    single.insert(single.end(), {1, size});
    expanded.insert(expanded.end(), {repeats[i], size});
    sizes.push_back(checked(Wide{repeats[i]} * size, "repeat", "the size"));
  }
  return self.reshape(as_list(single)).expand(as_list(expanded)).clone().reshape(as_list(sizes));
}

Tensor tile(const Tensor& self, IntList dims) {
  Dims repeats(std::max<int64_t>(self.dim() - static_cast<int64_t>(dims.size()), 0), 1);
  repeats.insert(repeats.end(), dims.begin(), dims.end());
  return self.repeat(as_list(repeats));
}

Tensor repeat_interleave(const Tensor& self, int64_t repeats, std::optional<int64_t> dim) {
  check_value(repeats >= 0, "repeat_interleave", "repeats ", repeats, " is negative");
  const Tensor source = !dim.has_value() || self.dim() == 0 ? self.reshape(-1) : self;
  const int64_t along = wrap_dim(dim.value_or(0), source.dim(), "repeat_interleave");
  const int64_t size = source.sizes()[along];
  const Dims expanded = geometry::with_dims(source.sizes(), along, along + 1, {size, repeats});
  const Dims sizes = geometry::with_size(
      source.sizes(), along, checked(Wide{size} * repeats, "repeat_interleave", "the size"));
  return source.unsqueeze(along + 1).expand(as_list(expanded)).clone().reshape(as_list(sizes));
}

Tensor flip(const Tensor& self, IntList dims) {
  const Dims wrapped = geometry::wrap_dims(dims, self.dim(), "flip");
  if (self.dim() == 0 || wrapped.empty()) return self.clone();
  Tensor result = self;
  for (const int64_t dim : wrapped) {
    const int64_t last = self.sizes()[dim] - 1;
    result = result.index_select(dim, mytorch::arange(last, -1, -1, kInt64, self.device()));
  }
  return result;
}

Tensor roll(const Tensor& self, IntList shifts, IntList dims) {
  if (dims.empty() && shifts.size() == 1) {
    return self.reshape(-1).roll(shifts, 0).reshape(self.sizes());
  }
  check_shape(shifts.size() == dims.size(), "roll", "shifts ", shifts, " and dims ", dims,
              " have different lengths");
  Tensor result = self.clone();
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = wrap_dim(dims[i], self.dim(), "roll");
    const int64_t size = self.dim() == 0 ? 1 : self.sizes()[dim];
    if (self.numel() == 0 || size == 1) continue;
    const int64_t first =
        ((-(shifts[i] % size)) % size + size) % size;  // the element that becomes the first
    if (first == 0) continue;
    result =
        mytorch::cat({result.narrow(dim, first, size - first), result.narrow(dim, 0, first)}, dim);
  }
  return result;
}

std::vector<Tensor> meshgrid(TensorList tensors, Str indexing) {
  check_value(!tensors.empty(), "meshgrid", "the list of tensors is empty");
  check_value(indexing == "ij" || indexing == "xy", "meshgrid", "indexing '", indexing,
              "' is neither 'ij' nor 'xy'");
  Dims sizes;
  for (const Tensor& tensor : tensors) {
    check_shape(tensor.dim() <= 1, "meshgrid", "takes 0-dim and 1-dim tensors, not one of shape ",
                tensor.sizes());
    check_type(tensor.dtype() == tensors[0].dtype(), "meshgrid", "the tensors are ",
               tensors[0].dtype(), " and ", tensor.dtype(), ": give all the same type");
    sizes.push_back(tensor.numel());
  }
  const bool swap = indexing == "xy" && tensors.size() >= 2;
  std::vector<Tensor> result;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Dims shape(tensors.size(), 1);
    shape[i] = sizes[i];
    const Tensor grid = tensors[i].reshape(as_list(shape)).expand(as_list(sizes));
    result.push_back(swap ? grid.transpose(0, 1) : grid);
  }
  return result;
}

}  // namespace composite

namespace grads {

std::vector<Tensor> cat_backward(const Tensor& grad, const std::vector<Dims>& shapes, int64_t dim) {
  dim = wrap_dim(dim, grad.dim(), "cat");
  std::vector<Tensor> result;
  int64_t start = 0;
  for (const Dims& shape : shapes) {
    const bool passed_over = shape.size() == 1 && shape[0] == 0;
    const int64_t size = passed_over ? 0 : shape[dim];
    result.push_back(passed_over ? zeros_like_shape(grad, 0) : grad.narrow(dim, start, size));
    start += size;
  }
  return result;
}

}  // namespace grads
}  // namespace mytorch
