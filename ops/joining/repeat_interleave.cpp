// Elements repeated as often as a tensor says.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/interleave_indices.h"
#include "mytorch/ops/searchsorted.h"
#include "ops/check.h"
#include "ops/geometry.h"
#include "ops/indexing.h"
#include "ops/spec.h"

namespace mytorch::shape {

TensorSpec interleave_indices(const Tensor& ends, int64_t size) {
  const char* op = "interleave_indices";
  check_shape(ends.dim() == 1, op, "ends has shape ", ends.sizes(), ": it must be a vector");
  check_type(ends.dtype() == kInt64, op, "ends is ", ends.dtype(), ": it must be int64");
  check_value(size >= 0, op, "size is ", size, ": it must not be negative");
  return like(ends, {size});
}

}  // namespace mytorch::shape

namespace mytorch::composite {

Tensor repeat_interleave_indices(const Tensor& repeats, std::optional<int64_t> output_size) {
  const char* op = "repeat_interleave";
  check_shape(repeats.dim() == 1, op, "repeats ", repeats.sizes(), " is not a vector");
  const Tensor ends = repeats.cumsum(0);
  const int64_t n = repeats.numel();
  if (!output_size.has_value()) {
    check_value(n == 0 || repeats.min().item<int64_t>() >= 0, op, "repeats has a negative number");
    output_size = n == 0 ? 0 : ends.select(0, n - 1).item<int64_t>();
  }
  constexpr int64_t kMost = int64_t{1} << 31;
  check_value(*output_size >= 0 && *output_size <= kMost, op, "output_size ", *output_size,
              " is not in [0, ", kMost, "]");
  return mytorch::interleave_indices(ends, *output_size);
}

Tensor interleave_indices(const Tensor& ends, int64_t size) {
  return mytorch::searchsorted(ends, mytorch::arange(size, kInt64, ends.device()), false, true);
}

Tensor repeat_interleave_each(const Tensor& self, const Tensor& repeats, std::optional<int64_t> dim,
                              std::optional<int64_t> output_size) {
  const char* op = "repeat_interleave";
  const Tensor x = dim.has_value() && self.dim() != 0 ? self : self.reshape({-1});
  const int64_t at = wrap_dim(dim.value_or(0), x.dim(), op), size = x.size(at);
  check_shape(repeats.dim() <= 1 && (repeats.numel() == 1 || repeats.numel() == size), op,
              "repeats ", repeats.sizes(), " has neither one number nor one for each of the ", size,
              " slices");
  const Tensor each = repeats.reshape({-1}).expand({size}).contiguous();
  return x.index_select(at, repeat_interleave_indices(each, output_size));
}

}  // namespace mytorch::composite
