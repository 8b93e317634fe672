#include "ops/geometry.h"

#include <algorithm>

namespace mytorch::geometry {

Dims infer_shape(IntList shape, int64_t numel, const char* op) {
  Dims result = to_dims(shape);
  int64_t known = 1;
  int64_t inferred = -1;
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i] == -1) {
      check_shape(inferred < 0, op, "shape ", shape, " has more than one -1");
      inferred = static_cast<int64_t>(i);
      continue;
    }
    check_shape(result[i] >= 0, op, "shape ", shape, " has the negative size ", result[i]);
    known = checked(Wide{known} * result[i], op, "the number of elements");
  }
  if (inferred >= 0) {
    check_shape(known != 0, op, "-1 in shape ", shape,
                " could be any size, because the others have no elements: give it explicitly");
    if (numel % known == 0) {
      result[inferred] = numel / known;
      known = numel;
    }
  }
  check_shape(known == numel, op, "shape ", shape, " does not fit a tensor of ", numel,
              " elements");
  return result;
}

std::optional<Dims> view_strides(IntList sizes, IntList strides, IntList to) {
  Dims result(to.size());
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) {  // an empty tensor has any strides
    contiguous_strides(to.data(), static_cast<int>(to.size()), result.data());
    return result;
  }
  // Iterates over both shapes from the end. A chunk is a run of old dimensions that are contiguous
  // with respect to each other; new dimensions must tile each chunk exactly.
  int64_t view = static_cast<int64_t>(to.size()) - 1;
  int64_t base_stride = sizes.empty() ? 1 : strides.back();
  int64_t chunk = 1;
  int64_t covered = 1;
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    chunk *= sizes[d];
    const bool ends = d == 0 || (sizes[d - 1] != 1 && strides[d - 1] != chunk * base_stride);
    if (!ends) continue;
    while (view >= 0 && (covered < chunk || to[view] == 1)) {
      result[view] = covered * base_stride;
      covered *= to[view];
      --view;
    }
    if (covered != chunk) return std::nullopt;
    if (d > 0) {
      base_stride = strides[d - 1];
      chunk = covered = 1;
    }
  }
  for (; view >= 0; --view) {  // a 0-dim tensor viewed with dimensions of size 1
    if (to[view] != 1) return std::nullopt;
    result[view] = 1;
  }
  return result;
}

Dims wrap_dims(IntList dims, int64_t ndim, const char* op) {
  Dims result;
  for (const int64_t dim : dims) {
    const int64_t wrapped = wrap_dim(dim, ndim, op);
    check_shape(std::find(result.begin(), result.end(), wrapped) == result.end(), op, "dim ", dim,
                " appears twice in ", dims);
    result.push_back(wrapped);
  }
  return result;
}

Dims for_each_dim(IntList list, int64_t n, const char* op, const char* name) {
  if (static_cast<int64_t>(list.size()) == n) return to_dims(list);
  check_shape(list.size() == 1, op, name, " has ", list.size(),
              " values: give one, or one for each of the ", n, " spatial dimensions");
  return Dims(n, list[0]);
}

}  // namespace mytorch::geometry
