// index and index_put: NumPy's indexing with several tensors. The indices are combined into one
// index into a tensor whose indexed dimensions are flattened into one.
#include <algorithm>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/logical_or.h"
#include "mytorch/ops/nonzero.h"
#include "ops/geometry.h"
#include "ops/indexing.h"

namespace mytorch::composite {
namespace {

struct Flattened {
  Tensor flat;   // (before..., product of the indexed sizes, after...)
  Tensor index;  // 1-dim, into dimension `dim` of flat
  int64_t dim = 0;
  Dims result;       // the shape of the indexed result
  Dims permuted;     // the sizes before flattening, with the indexed dimensions adjacent
  Dims order;        // the permutation that makes them adjacent
  bool all = false;  // there is no index, so all elements are taken
};

// Returns one index per dimension of `self`, undefined if the whole dimension is taken. Replaces
// masks by the indices of their true elements. A 0-dim mask indexes a new dimension.
std::vector<Tensor> one_per_dim(Tensor& self, TensorList indices, const char* op) {
  std::vector<Tensor> result;
  for (const Tensor& index : indices) {
    if (!index.defined()) {
      result.emplace_back();
      continue;
    }
    const int64_t at = static_cast<int64_t>(result.size());
    if (index.dtype() == kInt64 || index.dtype() == kInt32) {
      result.push_back(index);
      continue;
    }
    check_type(index.dtype() == kBool || index.dtype() == kUInt8, op, "index ", at, " is ",
               index.dtype(), ": indices are int64, int32 or bool");
    if (index.dim() == 0) {
      self = self.unsqueeze(std::min(at, self.dim()));
      result.push_back(mytorch::nonzero(index.reshape(1)).select(1, 0));
      continue;
    }
    for (int64_t d = 0; d < index.dim(); ++d) {
      check_shape(at + d < self.dim() && self.sizes()[at + d] == index.sizes()[d], op,
                  "a mask of shape ", index.sizes(), " does not fit dimension ", at,
                  " and those after it of shape ", self.sizes());
    }
    const Tensor kept = index.nonzero();
    for (int64_t d = 0; d < index.dim(); ++d) result.push_back(kept.select(1, d));
  }
  check_shape(static_cast<int64_t>(result.size()) <= self.dim(), op, result.size(),
              " indices for a tensor of shape ", self.sizes());
  result.resize(self.dim());
  return result;
}

// Combines the indices into one index into the product of `sizes`. An index that is out of range in
// any dimension stays out of range.
Tensor one_index(const std::vector<Tensor>& indices, IntList sizes, IntList shape) {
  if (indices.size() == 1) return indexing::from_front(indices[0], sizes[0]).reshape(-1);
  const int64_t total = checked_product(sizes, "index");
  Tensor sum, wrong;
  int64_t step = total;
  for (size_t i = 0; i < indices.size(); ++i) {
    step = sizes[i] == 0 ? 0 : step / sizes[i];
    const Tensor index = indexing::from_front(indices[i], sizes[i]);
    const Tensor outside = mytorch::logical_or(index < 0, index >= sizes[i]);
    const Tensor part = index * step;
    sum = sum.defined() ? sum + part : part;
    wrong = wrong.defined() ? wrong.logical_or(outside) : outside;
  }
  return sum.masked_fill(wrong, total).expand(shape).reshape(-1);
}

Flattened flatten_indexed(const Tensor& of, TensorList indices, const char* op) {
  Tensor self = of;
  const std::vector<Tensor> expanded = one_per_dim(self, indices, op);
  std::vector<Tensor> given;
  Dims shape, indexed_sizes, places;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!expanded[d].defined()) continue;
    const Tensor& index = expanded[d];
    shape = broadcast_shapes(as_list(shape), index.sizes(), op);
    given.push_back(index.device() == self.device() ? index : index.to(self.device()));
    indexed_sizes.push_back(self.sizes()[d]);
    places.push_back(d);
  }
  Flattened f;
  if (given.empty()) {
    f.flat = self;
    f.result = to_dims(self.sizes());
    f.all = true;
    return f;
  }
  // Adjacent indices keep their place in the result; others move to the front, as in NumPy.
  const bool together = places.back() - places.front() + 1 == static_cast<int64_t>(places.size());
  f.dim = together ? places.front() : 0;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!expanded[d].defined()) f.order.push_back(d);
  }
  f.order.insert(f.order.begin() + f.dim, places.begin(), places.end());
  Dims flat;
  for (int64_t i = 0; i < self.dim(); ++i) {
    const int64_t size = self.sizes()[f.order[i]];
    f.permuted.push_back(size);
    const bool is_indexed = i >= f.dim && i < f.dim + static_cast<int64_t>(places.size());
    if (!is_indexed) {
      flat.push_back(size);
      f.result.push_back(size);
    } else if (i == f.dim) {
      flat.push_back(checked_product(as_list(indexed_sizes), op));
      f.result.insert(f.result.end(), shape.begin(), shape.end());
    }
  }
  f.flat = (together ? self : self.permute(as_list(f.order))).reshape(as_list(flat));
  f.index = one_index(given, as_list(indexed_sizes), as_list(shape));
  return f;
}

}  // namespace

Tensor index(const Tensor& self, TensorList indices) {
  const Flattened f = flatten_indexed(self, indices, "index");
  if (f.all) return f.flat.clone();
  return f.flat.index_select(f.dim, f.index).reshape(as_list(f.result));
}

Tensor index_put(const Tensor& self, TensorList indices, const Tensor& values, bool accumulate) {
  check_same_type(self, "self", values, "values", "index_put");
  const Flattened f = flatten_indexed(self, indices, "index_put");
  check_shape(broadcasts_to(values.sizes(), as_list(f.result)), "index_put", "values of shape ",
              values.sizes(), " do not broadcast to the indexed elements, of shape ",
              as_list(f.result));
  const bool move = values.numel() == 1 && !(values.device() == self.device());
  const Tensor source = (move ? values.to(self.device()) : values).expand(as_list(f.result));
  if (f.all) return accumulate ? self + source : source.clone();
  const Dims sizes = geometry::with_size(f.flat.sizes(), f.dim, f.index.numel());
  const Tensor index = indexing::along(f.index, f.dim, as_list(sizes));
  const Tensor written = accumulate
                             ? f.flat.scatter_add(f.dim, index, source.reshape(as_list(sizes)))
                             : f.flat.scatter(f.dim, index, source.reshape(as_list(sizes)));
  Dims back(f.order.size());
  for (size_t i = 0; i < back.size(); ++i) back[f.order[i]] = static_cast<int64_t>(i);
  return written.reshape(as_list(f.permuted)).permute(as_list(back)).reshape(self.sizes());
}

}  // namespace mytorch::composite
