#include "ops/geometry.h"

#include <algorithm>

namespace mytorch::geometry {

int64_t product(IntList sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

Dims infer_shape(IntList shape, int64_t numel, const char* op) {
  Dims result = to_dims(shape);
  int64_t known = 1;
  int64_t inferred = -1;
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i] == -1) {
      if (inferred >= 0) {
        fail(ErrorCode::kShape, "[", op, "] shape ", shape_str(shape), " has more than one -1");
      }
      inferred = static_cast<int64_t>(i);
    } else if (result[i] < 0) {
      fail(ErrorCode::kShape, "[", op, "] shape ", shape_str(shape), " has the negative size ",
           result[i]);
    } else if (__builtin_mul_overflow(known, result[i], &known)) {
      fail(ErrorCode::kShape, "[", op, "] shape ", shape_str(shape), " has too many elements");
    }
  }
  if (inferred >= 0) {
    if (known == 0) {
      fail(ErrorCode::kShape, "[", op, "] -1 in shape ", shape_str(shape),
           " could be any size, because the others have no elements: give it explicitly");
    }
    if (numel % known == 0) {
      result[inferred] = numel / known;
      known = numel;
    }
  }
  if (known != numel) {
    fail(ErrorCode::kShape, "[", op, "] shape ", shape_str(shape), " does not fit a tensor of ",
         numel, " elements");
  }
  return result;
}

std::optional<Dims> view_strides(IntList sizes, IntList strides, IntList to) {
  Dims result(to.size());
  if (product(sizes) == 0) {  // an empty tensor has any strides
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

Dims broadcast_shapes(IntList a, IntList b, const char* op) {
  const IntList& longer = a.size() >= b.size() ? a : b;
  const IntList& shorter = a.size() >= b.size() ? b : a;
  Dims result = to_dims(longer);
  const size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t& size = result[lead + i];
    if (size == 1) {
      size = shorter[i];
    } else if (shorter[i] != 1 && shorter[i] != size) {
      fail(ErrorCode::kShape, "[", op, "] shapes ", shape_str(a), " and ", shape_str(b),
           " do not broadcast: sizes ", size, " and ", shorter[i], " differ");
    }
  }
  return result;
}

Dims wrap_dims(IntList dims, int64_t ndim, const char* op) {
  Dims result;
  for (const int64_t dim : dims) {
    const int64_t wrapped = wrap_dim(dim, ndim, op);
    if (std::find(result.begin(), result.end(), wrapped) != result.end()) {
      fail(ErrorCode::kShape, "[", op, "] dim ", dim, " appears twice in ", shape_str(dims));
    }
    result.push_back(wrapped);
  }
  return result;
}

Dims for_each_dim(IntList list, int64_t n, const char* op, const char* name) {
  if (static_cast<int64_t>(list.size()) == n) return to_dims(list);
  if (list.size() == 1) return Dims(n, list[0]);
  fail(ErrorCode::kShape, "[", op, "] ", name, " has ", list.size(),
       " values: give one, or one for each of the ", n, " spatial dimensions");
}

}  // namespace mytorch::geometry
