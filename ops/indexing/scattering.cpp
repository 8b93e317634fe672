// Reductions of the elements that an index sends to one place.
#include <cmath>

#include "mytorch/generated/bodies.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/conj.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/flip.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/full_like.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/index_put.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/scatter.h"
#include "mytorch/ops/scatter_add.h"
#include "mytorch/ops/scatter_reduce.h"
#include "mytorch/ops/searchsorted.h"
#include "mytorch/ops/sort.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/check.h"
#include "ops/creation.h"
#include "ops/geometry.h"
#include "ops/gradients.h"
#include "ops/indexing.h"
#include "ops/precision.h"
#include "ops/spec.h"

namespace mytorch {
namespace {

// Returns `x` cut to the sizes of the index.
Tensor cut_to(const Tensor& x, const Tensor& index) {
  Tensor result = x;
  for (int64_t d = 0; d < x.dim(); ++d) result = result.narrow(d, 0, index.size(d));
  return result;
}

void check_operands(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                    const char* op) {
  check_same_type(self, "self", src, "src", op);
  check_shape(index.dim() == self.dim() && src.dim() == self.dim(), op, "self ", self.sizes(),
              ", index ", index.sizes(), " and src ", src.sizes(),
              " have different numbers of dimensions");
  for (int64_t d = 0; d < self.dim(); ++d) {
    check_shape(index.size(d) <= src.size(d) && (d == dim || index.size(d) <= self.size(d)), op,
                "index ", index.sizes(), " is larger than self ", self.sizes(), " or src ",
                src.sizes(), " in dimension ", d);
  }
}

Tensor combined(const Tensor& x, const Tensor& y, Str reduce) {
  const bool logical = x.dtype() == kBool;
  if (reduce == "prod") return logical ? x.logical_and(y) : x * y;
  const Tensor wins = reduce == "amax" ? x >= y : x <= y;
  return mytorch::where(
      mytorch::isnan(x).logical_or(wins.logical_and(mytorch::isnan(y).logical_not())), x, y);
}

// Combines each element with all earlier ones of its place, by doubling. The places are sorted.
Tensor combined_within(Tensor values, int64_t dim, const Tensor& places, Str reduce) {
  const int64_t size = places.size(dim);
  for (int64_t shift = 1; shift < size; shift *= 2) {
    const Tensor later = values.narrow(dim, shift, size - shift);
    const Tensor earlier = values.narrow(dim, 0, size - shift);
    const Tensor together =
        places.narrow(dim, shift, size - shift) == places.narrow(dim, 0, size - shift);
    values = mytorch::cat({values.narrow(dim, 0, shift),
                           mytorch::where(together, combined(later, earlier, reduce), later)},
                          dim);
  }
  return values;
}

// Writes the reduction of the elements of each place into a copy of `self`. Sorting brings them
// together, and the last one of a place, which is written last, has all.
Tensor reduced_into(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                    Str reduce) {
  auto [places, order] = mytorch::sort(index, true, dim, false);
  const Tensor values = combined_within(cut_to(src, index).gather(dim, order), dim, places, reduce);
  const int64_t size = places.size(dim);
  // Only the last elements get a gradient: that of scatter would reach all of them.
  const Tensor next = places.narrow(dim, 1, size - 1) != places.narrow(dim, 0, size - 1);
  const Tensor end = mytorch::ones_like(places.narrow(dim, 0, 1), kBool);
  const Tensor last = mytorch::cat({next, end}, dim);
  return mytorch::scatter(self, dim, places, mytorch::where(last, values, values.detach()));
}

Tensor ones_of(const Tensor& index, ScalarType type) {
  return mytorch::ones(index.sizes(), type, index.device());
}

// Returns the number of elements at each place, at least 1.
Tensor counts_of(const Tensor& self, int64_t dim, const Tensor& index, bool include_self) {
  const Tensor start = include_self ? mytorch::ones(self.sizes(), kInt64, self.device())
                                    : mytorch::zeros(self.sizes(), kInt64, self.device());
  return mytorch::scatter_add(start, dim, index, ones_of(index, kInt64)).clamp_min(1);
}

// Returns `x` with 0 at the places of the index.
Tensor cleared(const Tensor& x, int64_t dim, const Tensor& index) {
  return mytorch::scatter(x, dim, index, 0);
}

// Returns the product of the elements before each one in its place, in the order of sorted places.
Tensor product_before(const Tensor& values, int64_t dim, const Tensor& places) {
  const int64_t size = places.size(dim);
  const Tensor together = places.narrow(dim, 1, size - 1) == places.narrow(dim, 0, size - 1);
  const Tensor before = mytorch::where(together, values.narrow(dim, 0, size - 1), 1);
  const Tensor one = mytorch::ones_like(values.narrow(dim, 0, 1));
  return combined_within(mytorch::cat({one, before}, dim), dim, places, "prod");
}

// Returns the product of all other elements of the place of each element. It has no division, so
// that every derivative is right at zeros.
Tensor product_of_others(const Tensor& own, int64_t dim, const Tensor& index) {
  const auto [places, order] = mytorch::sort(index, true, dim, false);
  const Tensor values = own.gather(dim, order);
  const Tensor after = mytorch::flip(
      product_before(mytorch::flip(values, {dim}), dim, mytorch::flip(places, {dim})), {dim});
  const Tensor others = product_before(values, dim, places) * after;
  return mytorch::scatter(mytorch::zeros_like(own), dim, order, others);
}

// The gradients of self and src for elements that are equal to the extremum, or, for products,
// the products of all other elements.
Tensors<2> gradients_of(const Tensor& grad, const Tensor& self, int64_t dim, const Tensor& index,
                        const Tensor& src, Str reduce, bool include_self, const Tensor& result) {
  const Tensor own = cut_to(src, index);
  const auto spread = [&](const Tensor& x) { return x.gather(dim, index); };
  const auto keep = [&](const Tensor& x) { return include_self ? x : cleared(x, dim, index); };
  if (reduce == "sum") return {keep(grad), spread(grad)};
  if (reduce == "mean") {
    const Tensor outer = widened(grad);
    const Tensor part =
        (outer / counts_of(self, dim, index, include_self).to(outer.dtype())).to(grad.dtype());
    return {keep(part), spread(part)};
  }
  if (reduce == "prod" && self.dim() > 0 && grad_enabled()) {
    const Tensor ones = mytorch::ones_like(self);
    const Tensor product = mytorch::scatter_reduce(ones, dim, index, own, "prod", true);
    const Tensor outer = include_self ? grad * mytorch::conj(self) : grad;
    return {keep(grad * mytorch::conj(product)),
            spread(outer) * mytorch::conj(product_of_others(own, dim, index))};
  }
  if (reduce == "prod") {
    // Computes the same values without sorting by division, whose derivative is wrong at zeros.
    const Tensor self_zero = self.detach() == 0, src_zero = own.detach() == 0;
    const Tensor zeros =
        mytorch::scatter_add(keep(self_zero.to(kInt64)), dim, index, src_zero.to(kInt64));
    const Tensor x = mytorch::where(self_zero, 1, self), y = mytorch::where(src_zero, 1, own);
    const Tensor product =
        grad * mytorch::conj(mytorch::scatter_reduce(x, dim, index, y, "prod", include_self));
    const auto share = [](const Tensor& all, const Tensor& count, const Tensor& zero,
                          const Tensor& x) {
      return mytorch::where(count == zero.to(kInt64), all / mytorch::conj(x), 0);
    };
    return {keep(share(product, zeros, self_zero, x)),
            share(spread(product), spread(zeros), src_zero, y)};
  }
  const Tensor extremum = result.detach();
  const auto equal = [](const Tensor& a, const Tensor& b) {
    return (a == b).logical_or(mytorch::isnan(a).logical_and(mytorch::isnan(b)));
  };
  Tensor self_is = equal(self.detach(), extremum).to(grad.dtype());
  self_is = keep(self_is);
  const Tensor src_is = equal(own.detach(), spread(extremum)).to(grad.dtype());
  const Tensor part = grad / mytorch::scatter_add(self_is, dim, index, src_is).clamp_min(1);
  return {self_is * part, src_is * spread(part)};
}

// Returns the index of index_reduce as one of scatter_reduce.
Tensor slices_index(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                    const char* op) {
  check_shape(index.dim() <= 1 && source.dim() == self.dim() &&
                  index.numel() == (source.dim() == 0 ? 1 : source.size(dim)),
              op, "index ", index.sizes(), " does not have one element for each slice of source ",
              source.sizes());
  for (int64_t d = 0; d < self.dim(); ++d) {
    check_shape(d == dim || self.size(d) == source.size(d), op, "source ", source.sizes(),
                " does not match self ", self.sizes());
  }
  return indexing::along(index, dim, source.sizes());
}

}  // namespace

namespace shape {

TensorSpec scatter_reduce_two(const Tensor& self, int64_t dim, const Tensor& index,
                              const Tensor& src, Str reduce, bool /*include_self*/) {
  const char* op = "scatter_reduce";
  check_value(reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "amax" ||
                  reduce == "amin",
              op, "reduce '", reduce, "' is none of 'sum', 'prod', 'mean', 'amax' and 'amin'");
  check_type(!self.is_complex() || (reduce != "amax" && reduce != "amin"), op, "self is ",
             self.dtype(), ", and complex numbers have no order for '", reduce, "'");
  dim = wrap_dim(dim, self.dim(), op);
  check_operands(self, dim, index, src, op);
  return spec_like(self);
}

}  // namespace shape

namespace composite {

Tensor scatter_reduce_two(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                          Str reduce, bool include_self) {
  dim = wrap_dim(dim, self.dim(), "scatter_reduce");
  if (index.numel() == 0) return self.clone();
  if (self.dim() == 0) {
    return mytorch::scatter_reduce(self.reshape({1}), 0, index.reshape({1}), src.reshape({1}),
                                   reduce, include_self)
        .reshape(IntList());
  }
  if (reduce == "sum" || reduce == "mean") {
    const bool mean = reduce == "mean";
    const Tensor start = include_self ? self : cleared(self, dim, index);
    // A sum that exceeds 16 bits may have a mean that does not.
    Tensor sum = mytorch::scatter_add(mean ? widened(start) : start, dim, index,
                                      mean ? widened(cut_to(src, index)) : cut_to(src, index));
    if (!mean) return sum;
    const Tensor counts = counts_of(self, dim, index, include_self);
    if (self.is_floating_point()) return (sum / counts.to(sum.dtype())).to(self.dtype());
    return mytorch::div(sum, counts, "floor").to(self.dtype());
  }
  Tensor result = reduced_into(self, dim, index, src, reduce);
  if (!include_self) return result;
  const Tensor none = mytorch::zeros(self.sizes(), kBool, self.device());
  const Tensor touched = mytorch::scatter(none, dim, index, true);
  return mytorch::where(touched, combined(self, result, reduce), self);
}

Tensor index_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                    Str reduce, bool include_self) {
  const char* op = "index_reduce";
  check_value(reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin", op,
              "reduce '", reduce, "' is none of 'prod', 'mean', 'amax' and 'amin'");
  const int64_t at = wrap_dim(dim, self.dim(), op);
  const Tensor places = slices_index(self, at, index, source, op);
  return mytorch::scatter_reduce(self, at, places, source, reduce, include_self);
}

Tensor put(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  check_same_type(self, "self", source, "source", "put");
  check_shape(index.numel() == source.numel(), "put", "index ", index.sizes(), " and source ",
              source.sizes(), " do not have equally many elements");
  if (index.numel() == 0) return self.clone();
  return mytorch::index_put(self.reshape({-1}), {index.reshape({-1})}, source.reshape({-1}),
                            accumulate)
      .reshape(self.sizes());
}

Tensor segment_reduce(const Tensor& data, Str reduce, const Tensor& lengths, const Tensor& indices,
                      const Tensor& offsets, int64_t axis, bool /*unsafe*/,
                      std::optional<Scalar> initial) {
  const char* op = "segment_reduce";
  check_floating(data, "data", op);
  check_value(
      reduce == "sum" || reduce == "mean" || reduce == "max" || reduce == "min" || reduce == "prod",
      op, "reduce '", reduce, "' is none of 'sum', 'mean', 'max', 'min' and 'prod'");
  check_value(!indices.defined() && lengths.defined() != offsets.defined(), op,
              "give either lengths or offsets; indices are not supported");
  const Tensor& given = lengths.defined() ? lengths : offsets;
  const int64_t at = wrap_dim(axis, data.dim(), op);
  check_shape(given.dim() == at + 1, op, "axis ", axis, " is not the last dimension of ",
              lengths.defined() ? "lengths " : "offsets ", given.sizes());
  for (int64_t d = 0; d < at; ++d) {
    check_shape(given.size(d) == data.size(d), op, "data ", data.sizes(), " and ",
                lengths.defined() ? "lengths " : "offsets ", given.sizes(), " differ in dimension ",
                d);
  }
  const int64_t size = data.size(at);
  check_shape(lengths.defined() || given.size(at) >= 1, op, "offsets ", given.sizes(),
              " have no element");
  const int64_t segments = given.size(at) - (lengths.defined() ? 0 : 1);
  // The end of each segment; an element belongs to the first one that ends after it.
  const Tensor ends =
      lengths.defined() ? lengths.cumsum(at) : offsets.narrow(at, 1, segments).contiguous();
  if (given.numel() > 0) {
    check_value(
        lengths.defined()
            ? lengths.min().item<int64_t>() >= 0
            : (segments == 0 || (offsets.narrow(at, 1, segments) - offsets.narrow(at, 0, segments))
                                        .min()
                                        .item<int64_t>() >= 0) &&
                  offsets.select(at, 0).min().item<int64_t>() == 0 &&
                  offsets.select(at, 0).max().item<int64_t>() == 0,
        op, "a segment has a negative length, or the first one does not begin at 0");
    const Tensor last =
        segments > 0 ? ends.select(at, segments - 1) : mytorch::zeros({1}, kInt64, data.device());
    check_value(last.min().item<int64_t>() == size && last.max().item<int64_t>() == size, op,
                "the lengths of the segments do not add up to the ", size, " elements of axis ",
                axis);
  }
  Dims positions = to_dims(ends.sizes());
  positions[at] = size;
  Tensor index = mytorch::arange(size, kInt64, data.device()).expand(as_list(positions));
  index = mytorch::searchsorted(ends, index.contiguous(), false, true);
  while (index.dim() < data.dim()) index = index.unsqueeze(-1);
  index = index.expand(data.sizes()).contiguous();
  Dims sizes = to_dims(data.sizes());
  sizes[at] = segments;
  const bool mean = reduce == "mean";
  // A sum that exceeds 16 bits may have a mean that does not.
  const Tensor x = mean ? widened(data) : data;
  const double neutral = reduce == "sum" || mean ? 0
                         : reduce == "prod"      ? 1
                         : reduce == "max"       ? -HUGE_VAL
                                                 : HUGE_VAL;
  const Tensor start =
      mytorch::full(as_list(sizes), initial.value_or(Scalar(neutral)), x.dtype(), data.device());
  Tensor result = mytorch::scatter_reduce(start, at, index, x,
                                          reduce == "max"   ? "amax"
                                          : reduce == "min" ? "amin"
                                          : mean            ? "sum"
                                                            : reduce,
                                          true);
  if (!mean) return result;
  const Tensor none = mytorch::zeros(as_list(sizes), kInt64, data.device());
  const Tensor counts = mytorch::scatter_add(none, at, index, ones_of(index, kInt64));
  const Tensor some = counts != 0;
  const Tensor means = result / mytorch::where(some, counts, 1).to(x.dtype());
  return mytorch::where(some, means, initial ? result : mytorch::full_like(result, std::nan("")))
      .to(data.dtype());
}

Tensor scatter_src_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                          Str reduce) {
  check_value(reduce == "add" || reduce == "multiply", "scatter", "reduce '", reduce,
              "' is neither 'add' nor 'multiply'");
  return mytorch::scatter_reduce(self, dim, index, src, reduce == "add" ? "sum" : "prod", true);
}

Tensor scatter_value_reduce(const Tensor& self, int64_t dim, const Tensor& index,
                            const Scalar& value, Str reduce) {
  const Tensor src = mytorch::full(index.sizes(), value, self.dtype(), self.device());
  return scatter_src_reduce(self, dim, index, src, reduce);
}

}  // namespace composite

namespace grads {

// Of sources that an index names twice, only the last one is in the result.
Tensor scatter_src(const Tensor& grad, int64_t dim, const Tensor& index, IntList shape) {
  const Tensor places =
      mytorch::arange(index.numel(), kInt64, index.device()).reshape(index.sizes());
  const Tensor written =
      mytorch::scatter(mytorch::zeros(grad.sizes(), kInt64, index.device()), dim, index, places);
  const Tensor last = mytorch::gather(written, dim, index) == places;
  return padded_to(mytorch::where(last, mytorch::gather(grad, dim, index), 0), shape);
}

Tensor scatter_reduce_self(const Tensor& grad, const Tensor& self, int64_t dim, const Tensor& index,
                           const Tensor& src, Str reduce, bool include_self, const Tensor& result) {
  if (index.numel() == 0) return grad;
  return std::get<0>(gradients_of(grad, self, dim, index, src, reduce, include_self, result));
}

Tensor scatter_reduce_src(const Tensor& grad, const Tensor& self, int64_t dim, const Tensor& index,
                          const Tensor& src, Str reduce, bool include_self, const Tensor& result) {
  if (index.numel() == 0) return grads::zeros_like_shape(grad, src.sizes());
  return padded_to(
      std::get<1>(gradients_of(grad, self, dim, index, src, reduce, include_self, result)),
      src.sizes());
}

}  // namespace grads
}  // namespace mytorch
