// Positions of elements as indices.
#include <algorithm>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/nonzero.h"
#include "mytorch/ops/where.h"
#include "ops/check.h"
#include "ops/geometry.h"

namespace mytorch::composite {

Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill_value) {
  check_value(size >= 0, "nonzero_static", "size is ", size, ": it must not be negative");
  const Tensor found = mytorch::nonzero(self);
  const int64_t rows = std::min(found.size(0), size);
  Tensor result = mytorch::full({size, self.dim()}, fill_value, kInt64, self.device());
  result.narrow(0, 0, rows).copy_(found.narrow(0, 0, rows));
  return result;
}

std::vector<Tensor> unravel_index(const Tensor& indices, IntList shape) {
  const char* op = "unravel_index";
  check_type(is_integral(indices.dtype()) && indices.dtype() != kBool, op, "indices are ",
             indices.dtype(), ": they must be integral");
  for (const int64_t size : shape) {
    check_value(size >= 0, op, "shape ", shape, " has the negative ", size);
  }
  const int64_t numel = checked_product(shape, op);
  if (indices.numel() > 0) {
    const int64_t low = indices.min().item().to<int64_t>(),
                  high = indices.max().item().to<int64_t>();
    check_value(low >= -numel && high < numel, op, "positions ", low, " to ", high,
                " are out of range for shape ", shape);
  }
  Tensor rest = indices.to(kInt64);
  rest = mytorch::where(rest < 0, rest + numel, rest);
  std::vector<Tensor> result(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    const int64_t size = std::max<int64_t>(shape[i], 1);
    result[i] = rest.remainder(size);
    rest = rest.floor_divide(size);
  }
  return result;
}

}  // namespace mytorch::composite
