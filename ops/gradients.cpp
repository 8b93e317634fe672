// Shapes of gradients: the reverse of broadcasts and reductions.
#include "ops/gradients.h"

#include "core/types/dims.h"
#include "core/types/errors.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/real.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::grads {
namespace {

// Returns `shape` with the reduced sizes set to 1; an absent or empty list reduces all.
Dims reduced_sizes(IntList shape, OptionalIntList dim) {
  const int64_t ndim = static_cast<int64_t>(shape.size());
  if (!dim.has_value() || dim->empty()) return Dims(shape.size(), 1);
  Dims sizes = to_dims(shape);
  if (ndim == 0) return sizes;
  for (int64_t d : *dim) sizes[wrap_dim(d, ndim, "backward")] = 1;
  return sizes;
}

}  // namespace

Tensor converted_back(const Tensor& grad, Device device, ScalarType dtype) {
  const bool drops = grad.is_complex() && !is_complex(dtype);
  return mytorch::to(drops ? mytorch::real(grad) : grad, device, dtype);
}

Tensor sum_to(const Tensor& x, IntList shape) {
  if (x.sizes() == shape) return x;
  const IntList sizes = x.sizes();
  const size_t lead = sizes.size() - shape.size();
  Dims spread;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i < lead || (shape[i - lead] == 1 && sizes[i] != 1)) {
      spread.push_back(static_cast<int64_t>(i));
    }
  }
  // Not a view, because accumulating gradients would have to copy it.
  if (lead > 0 && spread.size() == lead) return x.sum(as_list(spread), false, x.dtype());
  // If only leading sizes of 1 were added, nothing was broadcast.
  const Tensor total = spread.empty() ? x : x.sum(as_list(spread), true, x.dtype());
  return lead == 0 ? total : total.reshape(shape);
}

Tensor padded_to(const Tensor& x, IntList shape) {
  if (x.sizes() == shape) return x;
  // An index without elements, and so its gradient, may be larger than `shape` in a dimension.
  if (x.numel() == 0) return zeros_like_shape(x, shape);
  // A tensor of 0 dimensions counts as one of a single element.
  if (shape.empty()) return padded_to(x, {1}).reshape({});
  Tensor padded = x.dim() == 0 ? x.reshape({1}) : x;
  for (int64_t dim = 0; dim < padded.dim(); ++dim) {
    const int64_t lacking = shape[static_cast<size_t>(dim)] - padded.size(dim);
    if (lacking == 0) continue;
    Dims sizes = to_dims(padded.sizes());
    sizes[static_cast<size_t>(dim)] = lacking;
    padded = cat({padded, zeros_like_shape(x, as_list(sizes))}, dim);
  }
  return padded;
}

Tensor zeros_like_shape(const Tensor& like, IntList shape) {
  return zeros(shape, like.dtype(), like.device());
}

Tensor with_reduced_dims(const Tensor& x, IntList shape, OptionalIntList dim, bool keepdim) {
  if (keepdim || shape.empty()) return x;
  const Dims sizes = reduced_sizes(shape, dim);
  return x.reshape(as_list(sizes));
}

int64_t reduced_count(IntList shape, OptionalIntList dim) {
  const Dims kept = reduced_sizes(shape, dim);
  int64_t n = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (kept[i] != shape[i]) n *= shape[i];
  }
  return n;
}

}  // namespace mytorch::grads
