// Composites of views.
#include <algorithm>

#include "core/types/broadcast.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/as_strided_relative.h"
#include "ops/composites.h"
#include "ops/geometry.h"

namespace mytorch::composite {
namespace {

// Returns pieces of the given sizes, which add up to the size of the dimension.
std::vector<Tensor> pieces(const Tensor& self, IntList sizes, int64_t dim) {
  std::vector<Tensor> result;
  result.reserve(sizes.size());
  int64_t start = 0;
  for (const int64_t size : sizes) {
    result.push_back(self.slice(dim, start, start + size));
    start += size;
  }
  return result;
}

std::vector<Tensor> contiguous_copies(std::vector<Tensor> views) {
  for (Tensor& view : views) view = contiguous_copy(view);
  return views;
}

// Throws Error(kValue) if a list cannot have so many views.
int64_t checked_pieces(int64_t n, const char* op) {
  constexpr int64_t kMost = int64_t{1} << 24;
  check_value(n <= kMost, op, "the list would have ", n, " tensors, of which it can hold ", kMost);
  return n;
}

int64_t split_dim(const Tensor& self, int64_t dim, const char* op) {
  check_shape(self.dim() != 0, op, "a 0-dim tensor cannot be split");
  return wrap_dim(dim, self.dim(), op);
}

// Returns the pieces between the positions `cuts`, which mean what they mean in a slice.
std::vector<Tensor> cut(const Tensor& self, IntList cuts, int64_t dim, const char* op) {
  dim = split_dim(self, dim, op);
  std::vector<Tensor> result;
  int64_t start = 0;
  for (const int64_t end : cuts) {
    result.push_back(self.slice(dim, start, end));
    start = end;
  }
  result.push_back(self.slice(dim, start));
  return result;
}

std::vector<Tensor> cut_sections(const Tensor& self, int64_t sections, int64_t dim,
                                 const char* op) {
  dim = split_dim(self, dim, op);
  check_value(sections > 0, op, "sections ", sections, " is not positive");
  const int64_t size = self.sizes()[dim];
  std::vector<int64_t> sizes(checked_pieces(sections, op), size / sections);
  for (int64_t i = 0; i < size % sections; ++i) ++sizes[i];
  return pieces(self, sizes, dim);
}

std::vector<Tensor> cut_evenly(const Tensor& self, int64_t sections, int64_t dim, const char* op) {
  check_value(sections > 0 && self.size(dim) % sections == 0, op, sections,
              " equal sections do not divide dimension ", dim, " of shape ", self.sizes());
  return cut_sections(self, sections, dim, op);
}

int64_t horizontal(const Tensor& self) {
  check_shape(self.dim() >= 1, "hsplit", "a 0-dim tensor cannot be split");
  return self.dim() == 1 ? 0 : 1;
}

// Returns `dim`, which tensors of at least `ndim` dimensions have.
int64_t dim_of(const Tensor& self, int64_t dim, int64_t ndim, const char* op) {
  check_shape(self.dim() >= ndim, op, "shape ", self.sizes(), " has fewer than ", ndim,
              " dimensions");
  return dim;
}

}  // namespace

Tensor as_strided(const Tensor& self, IntList size, IntList stride,
                  std::optional<int64_t> storage_offset) {
  const int64_t own = self.storage_offset();
  const Wide offset = Wide{storage_offset.value_or(own)} - own;
  return mytorch::as_strided_relative(self, size, stride,
                                      checked(offset, "as_strided", "the offset"));
}

Tensor t(const Tensor& self) {
  check_shape(self.dim() <= 2, "t",
              "a tensor of at most 2 dimensions has a transpose, not of shape ", self.sizes(),
              ": use transpose, permute or mT");
  return self.transpose(0, self.dim() == 2 ? 1 : 0);
}

Tensor mT(const Tensor& self) {
  check_shape(self.dim() >= 2, "mT", "shape ", self.sizes(), " has fewer than two dimensions");
  return self.transpose(-2, -1);
}

Tensor numpy_T(const Tensor& self) {
  Dims order(self.dim());
  for (int64_t i = 0; i < self.dim(); ++i) order[i] = self.dim() - 1 - i;
  return self.permute(as_list(order));
}

Tensor reshape(const Tensor& self, IntList shape) {
  const Dims sizes = geometry::infer_shape(shape, self.numel(), "reshape");
  if (geometry::view_strides(self.sizes(), self.strides(), as_list(sizes)).has_value()) {
    return self.view(as_list(sizes));
  }
  return self.contiguous().view(as_list(sizes));
}

Tensor narrow(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  check_shape(self.dim() != 0, "narrow", "a 0-dim tensor cannot be narrowed");
  dim = wrap_dim(dim, self.dim(), "narrow");
  const int64_t size = self.sizes()[dim];
  const int64_t first = start < 0 ? start + size : start;
  check_shape(length >= 0 && first >= 0 && first <= size && length <= size - first, "narrow",
              "start ", start, " and length ", length, " do not lie within dimension ", dim,
              " of shape ", self.sizes());
  return self.slice(dim, first, first + length);
}

Tensor flatten(const Tensor& self, int64_t start_dim, int64_t end_dim) {
  start_dim = wrap_dim(start_dim, self.dim(), "flatten");
  end_dim = wrap_dim(end_dim, self.dim(), "flatten");
  check_shape(start_dim <= end_dim, "flatten", "start_dim ", start_dim, " comes after end_dim ",
              end_dim);
  if (self.dim() == 0) return self.reshape(1);
  if (start_dim == end_dim) return self;
  const IntList sizes = self.sizes();
  const IntList merged(sizes.data() + start_dim, static_cast<size_t>(end_dim - start_dim + 1));
  const Dims shape =
      geometry::with_dims(sizes, start_dim, end_dim + 1, checked_product(merged, "flatten"));
  return self.reshape(as_list(shape));
}

Tensor unflatten(const Tensor& self, int64_t dim, IntList sizes) {
  check_shape(self.dim() != 0, "unflatten", "a 0-dim tensor has no dimension");
  dim = wrap_dim(dim, self.dim(), "unflatten");
  check_shape(!sizes.empty(), "unflatten", "sizes is empty");
  const Dims inner = geometry::infer_shape(sizes, self.sizes()[dim], "unflatten");
  const Dims shape = geometry::with_dims(self.sizes(), dim, dim + 1, as_list(inner));
  return self.view(as_list(shape));
}

std::vector<Tensor> split(const Tensor& self, int64_t split_size, int64_t dim) {
  dim = split_dim(self, dim, "split");
  const int64_t size = self.sizes()[dim];
  check_value(split_size >= 0 && (split_size != 0 || size == 0), "split", "split_size ", split_size,
              " is not positive");
  // An empty dimension gives one empty piece.
  const int64_t n =
      split_size == 0 ? 1 : std::max<int64_t>(size / split_size + (size % split_size != 0), 1);
  std::vector<int64_t> sizes(checked_pieces(n, "split"), split_size);
  sizes.back() = size - split_size * (n - 1);
  return pieces(self, sizes, dim);
}

std::vector<Tensor> split_sizes(const Tensor& self, IntList split_sizes, int64_t dim) {
  dim = split_dim(self, dim, "split");
  Wide sum = 0;
  for (const int64_t size : split_sizes) {
    check_value(size >= 0, "split", "sizes ", split_sizes, " has the negative ", size);
    sum += size;
  }
  check_shape(sum == self.sizes()[dim], "split", "sizes ", split_sizes,
              " do not add up to the size of dimension ", dim, ", ", self.sizes()[dim]);
  return pieces(self, split_sizes, dim);
}

std::vector<Tensor> chunk(const Tensor& self, int64_t chunks, int64_t dim) {
  dim = split_dim(self, dim, "chunk");
  check_value(chunks > 0, "chunk", "chunks ", chunks, " is not positive");
  const int64_t size = self.sizes()[dim];
  if (size == 0) {
    return pieces(self, std::vector<int64_t>(checked_pieces(chunks, "chunk"), 0), dim);
  }
  return self.split((size - 1) / chunks + 1, dim);
}

std::vector<Tensor> unbind(const Tensor& self, int64_t dim) {
  dim = split_dim(self, dim, "unbind");
  const int64_t n = checked_pieces(self.sizes()[dim], "unbind");
  std::vector<Tensor> result;
  result.reserve(n);
  for (int64_t i = 0; i < n; ++i) result.push_back(self.select(dim, i));
  return result;
}

Tensor movedim(const Tensor& self, IntList source, IntList destination) {
  check_shape(source.size() == destination.size(), "movedim", "source ", source,
              " and destination ", destination, " have different lengths");
  const int64_t ndim = self.dim();
  const Dims from = geometry::wrap_dims(source, ndim, "movedim");
  const Dims to = geometry::wrap_dims(destination, ndim, "movedim");
  if (ndim == 0) return self;
  Dims order(ndim, -1);
  for (size_t i = 0; i < from.size(); ++i) order[to[i]] = from[i];
  int64_t next = 0;  // the other dimensions fill the gaps in order
  for (int64_t& dim : order) {
    if (dim >= 0) continue;
    while (std::find(from.begin(), from.end(), next) != from.end()) ++next;
    dim = next++;
  }
  return self.permute(as_list(order));
}

Tensor positive(const Tensor& self) {
  check_type(self.dtype() != kBool, "positive", "self is bool: convert it to a number type");
  return self;
}

Tensor sum_to_size(const Tensor& self, IntList size) {
  const char* op = "sum_to_size";
  if (size.empty()) return self.sum();
  const int64_t lead = self.dim() - static_cast<int64_t>(size.size());
  check_shape(lead >= 0, op, "size ", size, " has more dimensions than self of shape ",
              self.sizes());
  Dims summed;
  for (int64_t d = 0; d < self.dim(); ++d) {
    const int64_t wanted = d < lead ? 1 : size[d - lead];
    check_shape(d < lead || wanted == 1 || wanted == self.size(d), op, "size ", size,
                " does not broadcast to the shape ", self.sizes(), " of self");
    if (d < lead || wanted != self.size(d)) summed.push_back(d);
  }
  return summed.empty() ? self : self.sum(as_list(summed), true).reshape(size);
}

Tensor whole(const Tensor& self) { return self; }

Tensor squeezed_copy(const Tensor& self, IntList dim) { return contiguous_copy(self.squeeze(dim)); }

std::vector<Tensor> split_copy(const Tensor& self, int64_t split_size, int64_t dim) {
  return contiguous_copies(self.split(split_size, dim));
}
std::vector<Tensor> split_with_sizes_copy(const Tensor& self, IntList split_sizes, int64_t dim) {
  return contiguous_copies(self.split_with_sizes(split_sizes, dim));
}
std::vector<Tensor> unbind_copy(const Tensor& self, int64_t dim) {
  return contiguous_copies(self.unbind(dim));
}

std::vector<Tensor> tensor_split_sections(const Tensor& self, int64_t sections, int64_t dim) {
  return cut_sections(self, sections, dim, "tensor_split");
}
std::vector<Tensor> tensor_split_indices(const Tensor& self, IntList indices, int64_t dim) {
  return cut(self, indices, dim, "tensor_split");
}
std::vector<Tensor> tensor_split_tensor(const Tensor& self, const Tensor& positions, int64_t dim) {
  const char* op = "tensor_split";
  check_type(positions.dtype() == kInt64, op, "the number of sections or the indices are ",
             positions.dtype(), ": give int64");
  check_shape(positions.dim() <= 1, op, "the indices have shape ", positions.sizes(),
              ": give a vector, or one number of sections");
  if (positions.dim() == 0) return cut_sections(self, positions.item<int64_t>(), dim, op);
  const Tensor host = positions.to(kCPU).contiguous();
  return cut(self, IntList(host.const_data<int64_t>(), static_cast<size_t>(host.numel())), dim, op);
}

std::vector<Tensor> hsplit_sections(const Tensor& self, int64_t sections) {
  return cut_evenly(self, sections, horizontal(self), "hsplit");
}
std::vector<Tensor> hsplit_indices(const Tensor& self, IntList indices) {
  return cut(self, indices, horizontal(self), "hsplit");
}
std::vector<Tensor> vsplit_sections(const Tensor& self, int64_t sections) {
  return cut_evenly(self, sections, dim_of(self, 0, 2, "vsplit"), "vsplit");
}
std::vector<Tensor> vsplit_indices(const Tensor& self, IntList indices) {
  return cut(self, indices, dim_of(self, 0, 2, "vsplit"), "vsplit");
}
std::vector<Tensor> dsplit_sections(const Tensor& self, int64_t sections) {
  return cut_evenly(self, sections, dim_of(self, 2, 3, "dsplit"), "dsplit");
}
std::vector<Tensor> dsplit_indices(const Tensor& self, IntList indices) {
  return cut(self, indices, dim_of(self, 2, 3, "dsplit"), "dsplit");
}

Tensor atleast_1d(const Tensor& self) { return self.dim() == 0 ? self.reshape({1}) : self; }

Tensor atleast_2d(const Tensor& self) {
  if (self.dim() == 0) return self.reshape({1, 1});
  return self.dim() == 1 ? self.unsqueeze(0) : self;
}

Tensor atleast_3d(const Tensor& self) {
  if (self.dim() == 0) return self.reshape({1, 1, 1});
  if (self.dim() == 1) return self.unsqueeze(0).unsqueeze(-1);
  return self.dim() == 2 ? self.unsqueeze(-1) : self;
}

std::vector<Tensor> atleast_1d_each(TensorList tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(atleast_1d(tensor));
  return result;
}

std::vector<Tensor> atleast_2d_each(TensorList tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(atleast_2d(tensor));
  return result;
}

std::vector<Tensor> atleast_3d_each(TensorList tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(atleast_3d(tensor));
  return result;
}

Tensor narrow_tensor(const Tensor& self, int64_t dim, const Tensor& start, int64_t length) {
  check_type(is_integral(start.dtype()) && start.dtype() != kBool && start.dim() == 0, "narrow",
             "start is ", start.dtype(), " of shape ", start.sizes(), ": give a 0-dim integer");
  return self.narrow(dim, start.to(kInt64).item<int64_t>(), length);
}

std::vector<Tensor> broadcast_tensors(TensorList tensors) {
  Dims sizes;
  for (const Tensor& tensor : tensors) {
    sizes = broadcast_shapes(as_list(sizes), tensor.sizes(), "broadcast_tensors");
  }
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(tensor.expand(as_list(sizes)));
  return result;
}

}  // namespace mytorch::composite
