// Reading and writing elements by index tensors: gather, scatter, and their composites.
#include "ops/indexing.h"

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/index_select.h"
#include "mytorch/ops/max.h"
#include "mytorch/ops/nonzero.h"
#include "mytorch/ops/scatter.h"
#include "mytorch/ops/scatter_add.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "ops/geometry.h"

namespace mytorch {
namespace indexing {

Tensor along(const Tensor& index, int64_t dim, IntList shape) {
  Dims single(shape.size(), 1);
  if (!single.empty()) single[dim] = index.numel();
  return index.reshape(as_list(single)).expand(shape);
}

Tensor from_front(const Tensor& index, int64_t size) {
  const Tensor wide = index.to(kInt64);
  return mytorch::where(wide < 0, wide + size, wide);
}

}  // namespace indexing

namespace shape {
namespace {

void check_index_type(const Tensor& index, const char* op, bool or_int32 = false) {
  if (index.dtype() == kInt64 || (or_int32 && index.dtype() == kInt32)) return;
  fail(ErrorCode::kType, "[", op, "] the index is ", dtype_name(index.dtype()), ": it must be ",
       or_int32 ? "int64 or int32" : "int64");
}

// Checks an index that selects slices of a dimension.
void check_slice_index(const Tensor& index, const char* op) {
  check_index_type(index, op, true);
  check_shape(index.dim() <= 1, op, "the index has shape ", index.sizes(), ": it must be 1-dim");
}

int64_t size_or_one(const Tensor& x, int64_t dim) { return x.dim() == 0 ? 1 : x.sizes()[dim]; }
int64_t dims_or_one(const Tensor& x) { return x.dim() == 0 ? 1 : x.dim(); }

// For gather and scatter: checks that `index` has as many dimensions as `bound` and, unless it is
// empty, is no larger in any dimension except `free` (-1: none).
void check_index_shape(const Tensor& index, const Tensor& bound, const char* name, int64_t free,
                       const char* op) {
  check_shape(dims_or_one(index) == dims_or_one(bound), op, "the index, of shape ", index.sizes(),
              ", and ", name, ", of shape ", bound.sizes(), ", must have as many dimensions");
  for (int64_t d = 0; d < dims_or_one(bound) && index.numel() != 0; ++d) {
    check_shape(d == free || size_or_one(index, d) <= size_or_one(bound, d), op,
                "the index, of shape ", index.sizes(), ", is larger in dimension ", d, " than ",
                name, ", of shape ", bound.sizes());
  }
}

TensorSpec scattered(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                     const char* op) {
  dim = wrap_dim(dim, self.dim(), op);
  check_same_type(self, "self", src, "src", op);
  if (index.numel() != 0) check_index_type(index, op);
  check_index_shape(index, self, "self", dim, op);
  check_index_shape(index, src, "src", -1, op);
  return like(self);
}

}  // namespace

TensorSpec gather(const Tensor& self, int64_t dim, const Tensor& index) {
  dim = wrap_dim(dim, self.dim(), "gather");
  if (index.numel() != 0) check_index_type(index, "gather");
  check_index_shape(index, self, "self", dim, "gather");
  return like(self, to_dims(index.sizes()));
}

TensorSpec scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return scattered(self, dim, index, src, "scatter");
}

TensorSpec scatter_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return scattered(self, dim, index, src, "scatter_add");
}

TensorSpec index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  dim = wrap_dim(dim, self.dim(), "index_select");
  check_slice_index(index, "index_select");
  if (self.dim() == 0) {
    check_shape(index.numel() == 1, "index_select", "a 0-dim tensor takes one index, not ",
                index.numel());
    return like(self);
  }
  return like(self, geometry::with_size(self.sizes(), dim, index.numel()));
}

// The kernel determines the number of rows.
TensorSpec nonzero(const Tensor& self) { return like(self, {0, self.dim()}, kInt64); }

}  // namespace shape

namespace composite {
namespace {

// index_add, index_copy and index_fill treat 0-dim tensors as 1-dim.
Tensor at_least_1d(const Tensor& x) { return x.dim() == 0 ? x.reshape(1) : x; }

void check_slices(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                  const char* op) {
  shape::check_slice_index(index, op);
  check_same_type(self, "self", source, "source", op);
  const Dims expected = geometry::with_size(at_least_1d(self).sizes(), dim, index.numel());
  check_shape(at_least_1d(source).sizes() == as_list(expected), op, "source has shape ",
              source.sizes(), ", but an index of ", index.numel(), " elements in dimension ", dim,
              " of shape ", self.sizes(), " takes ", as_list(expected));
}

}  // namespace

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  dim = wrap_dim(dim, self.dim(), "index_select");
  const Tensor wide = index.to(kInt64);
  if (self.dim() == 0) {
    return mytorch::gather(self.reshape(1), 0, wide.reshape(1)).reshape(IntList());
  }
  const Dims sizes = geometry::with_size(self.sizes(), dim, index.numel());
  return self.gather(dim, indexing::along(wide, dim, as_list(sizes)));
}

Tensor scatter_value(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  const Tensor source = scalar_tensor(value, self.dtype(), self.device());
  return self.scatter(dim, index, source.expand(index.sizes()));
}

Tensor index_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                 const Scalar& alpha) {
  dim = wrap_dim(dim, self.dim(), "index_add");
  check_slices(self, dim, index, source, "index_add");
  const Tensor added = at_least_1d(alpha == Scalar(1) ? source : source * alpha);
  return mytorch::scatter_add(at_least_1d(self), dim,
                              indexing::along(index.to(kInt64), dim, added.sizes()),
                              added.to(self.dtype()))
      .reshape(self.sizes());
}

Tensor index_copy(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  dim = wrap_dim(dim, self.dim(), "index_copy");
  check_slices(self, dim, index, source, "index_copy");
  const Tensor copied = at_least_1d(source);
  return mytorch::scatter(at_least_1d(self), dim,
                          indexing::along(index.to(kInt64), dim, copied.sizes()), copied)
      .reshape(self.sizes());
}

Tensor index_fill(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  dim = wrap_dim(dim, self.dim(), "index_fill");
  shape::check_slice_index(index, "index_fill");
  const Tensor filled = at_least_1d(self);
  const Dims sizes = geometry::with_size(filled.sizes(), dim, index.numel());
  // As in ATen, negative indices count from the end.
  const Tensor wrapped = indexing::from_front(index, filled.sizes()[dim]);
  return filled.scatter(dim, indexing::along(wrapped, dim, as_list(sizes)), value)
      .reshape(self.sizes());
}

Tensor index_fill_tensor(const Tensor& self, int64_t dim, const Tensor& index,
                         const Tensor& value) {
  dim = wrap_dim(dim, self.dim(), "index_fill");
  shape::check_slice_index(index, "index_fill");
  check_shape(value.dim() == 0, "index_fill", "the value has shape ", value.sizes(),
              ": give a 0-dim tensor");
  const Tensor filled = at_least_1d(self);
  const Dims sizes = geometry::with_size(filled.sizes(), dim, index.numel());
  const Tensor wrapped = indexing::from_front(index, filled.sizes()[dim]);
  return mytorch::scatter(filled, dim, indexing::along(wrapped, dim, as_list(sizes)),
                          value.to(self.dtype()).expand(as_list(sizes)))
      .reshape(self.sizes());
}

// The shape to which self and mask broadcast, and the indices of the chosen elements of this shape.
struct Masked {
  Dims sizes;
  Tensor chosen;
};

static Masked masked(const Tensor& self, const Tensor& mask, const char* op) {
  check_type(mask.dtype() == kBool, op, "the mask is ", mask.dtype(), ": it must be bool");
  Dims sizes = broadcast_shapes(self.sizes(), mask.sizes(), op);
  Tensor chosen = mytorch::nonzero(mask.expand(as_list(sizes)).reshape(-1)).select(1, 0);
  return {std::move(sizes), std::move(chosen)};
}

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  const auto [sizes, chosen] = masked(self, mask, "masked_select");
  return mytorch::index_select(self.expand(as_list(sizes)).reshape(-1), 0, chosen);
}

Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source) {
  check_same_type(self, "self", source, "source", "masked_scatter");
  const auto [sizes, chosen] = masked(self, mask, "masked_scatter");
  const int64_t n = chosen.numel();
  check_shape(n <= source.numel(), "masked_scatter", "the mask has ", n,
              " true elements, but source ", source.numel());
  return mytorch::scatter(self.expand(as_list(sizes)).reshape(-1), 0, chosen,
                          source.reshape(-1).narrow(0, 0, n))
      .reshape(as_list(sizes));
}

Tensor take(const Tensor& self, const Tensor& index) {
  shape::check_index_type(index, "take");
  const Tensor positions = indexing::from_front(index, self.numel()).reshape(-1);
  return mytorch::index_select(self.reshape(-1), 0, positions).reshape(index.sizes());
}

Tensor take_along_dim(const Tensor& self, const Tensor& indices, std::optional<int64_t> dim) {
  shape::check_index_type(indices, "take_along_dim");
  if (!dim.has_value()) return mytorch::gather(self.reshape(-1), 0, indices.reshape(-1));
  check_shape(self.dim() == indices.dim(), "take_along_dim", "self, of shape ", self.sizes(),
              ", and the indices, of shape ", indices.sizes(), ", must have as many dimensions");
  const int64_t along = wrap_dim(*dim, self.dim(), "take_along_dim");
  if (self.dim() == 0) return self.gather(0, indices);
  // Both broadcast, but keep their own size along `dim`.
  Dims own = to_dims(self.sizes()), chosen = to_dims(indices.sizes());
  own[along] = chosen[along] = 1;
  const Dims sizes = broadcast_shapes(as_list(own), as_list(chosen), "take_along_dim");
  own = chosen = sizes;
  own[along] = self.sizes()[along];
  chosen[along] = indices.sizes()[along];
  // As in ATen, negative indices count from the end.
  const Tensor wrapped = indexing::from_front(indices, self.sizes()[along]);
  return mytorch::gather(self.expand(as_list(own)), along, wrapped.expand(as_list(chosen)));
}

Tensor one_hot(const Tensor& self, int64_t num_classes) {
  shape::check_index_type(self, "one_hot");
  check_value(num_classes != 0 && num_classes >= -1, "one_hot", "num_classes ", num_classes,
              " is neither positive nor -1");
  if (num_classes == -1) {
    check_value(self.numel() != 0, "one_hot",
                "a tensor of no elements does not tell the number of classes: give num_classes");
    num_classes = checked(Wide{mytorch::max(self).item().to_int()} + 1, "one_hot", "num_classes");
  }
  Dims sizes = to_dims(self.sizes());
  sizes.push_back(num_classes);
  const Tensor cold = mytorch::zeros(as_list(sizes), kInt64, self.device());
  return cold.scatter(-1, self.unsqueeze(-1), 1);
}

}  // namespace composite
}  // namespace mytorch
