// Rotary position embedding: pairs of elements of a row are rotated by angles that depend on the
// position of the row. 16-bit types compute in float32.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "ops/creation.h"
#include "ops/geometry.h"
#include "ops/precision.h"

namespace mytorch {
namespace {

constexpr const char* kOp = "rotary_embedding";

void check_table(const Tensor& table, const char* name, const Tensor& self) {
  check_type(table.dtype() == self.dtype() || table.dtype() == wide_type(self.dtype()), kOp, name,
             " is ", table.dtype(), ", but self is ", self.dtype(), ": convert ", name);
}

// Returns the rows of a table (P, R / 2) for an input of `ndim` dimensions, as (T, R / 2) or
// (B, 1, ..., T, R / 2), in the compute type.
Tensor rows_of(const Tensor& table, const Tensor& positions, int64_t rows, int64_t ndim) {
  if (!positions.defined()) return widened(table.narrow(0, 0, rows));
  Tensor taken = widened(table.index_select(0, positions.reshape(-1)));
  if (positions.dim() == 1) return taken;
  Dims sizes(ndim, 1);
  sizes[0] = positions.size(0);
  sizes[ndim - 2] = positions.size(1);
  sizes[ndim - 1] = table.size(1);
  return taken.reshape(as_list(sizes));
}

}  // namespace

namespace shape {

TensorSpec rotary_embedding(const Tensor& self, const Tensor& cos, const Tensor& sin,
                            const Tensor& positions, bool /*interleaved*/, bool /*inverse*/) {
  check_floating(self, "self", kOp);
  const IntList sizes = self.sizes();
  check_shape(sizes.size() >= 2, kOp, "self has shape ", sizes, ": it must be (..., T, D)");
  check_table(cos, "cos", self);
  check_table(sin, "sin", self);
  check_shape(cos.dim() == 2 && cos.sizes() == sin.sizes(), kOp, "cos ", cos.sizes(), " and sin ",
              sin.sizes(), " must have the same shape, (positions, half of the rotated width)");
  const int64_t rows = sizes[sizes.size() - 2], width = sizes.back();
  check_shape(cos.size(1) <= width / 2, kOp, "cos and sin have ", cos.size(1),
              " columns, which rotate twice as many elements, but self of shape ", sizes,
              " has rows of ", width);
  if (!positions.defined()) {
    check_shape(rows <= cos.size(0), kOp, "cos and sin have ", cos.size(0),
                " rows, but self of shape ", sizes, " has ", rows, " positions");
    return spec_like(self);
  }
  check_type(positions.dtype() == kInt64 || positions.dtype() == kInt32, kOp, "positions are ",
             positions.dtype(), ": they must be int64 or int32");
  const IntList given = positions.sizes();
  const bool by_row = given.size() == 1 && given[0] == rows;
  const bool by_batch =
      given.size() == 2 && sizes.size() >= 3 && given[0] == sizes[0] && given[1] == rows;
  check_shape(by_row || by_batch, kOp, "positions have shape ", given, ", but self of shape ",
              sizes, " takes (T) or (B, T), where B is its first dimension");
  return spec_like(self);
}

}  // namespace shape

namespace composite {

Tensor rotary_embedding(const Tensor& self, const Tensor& cos, const Tensor& sin,
                        const Tensor& positions, bool interleaved, bool inverse) {
  const int64_t n = cos.size(1), width = self.size(-1);
  const Tensor c = rows_of(cos, positions, self.size(-2), self.dim());
  const Tensor s = rows_of(sin, positions, self.size(-2), self.dim());
  const auto halves = [&](const Tensor& x) -> std::pair<Tensor, Tensor> {
    const Tensor rotated = x.narrow(-1, 0, 2 * n);
    if (!interleaved) return {rotated.narrow(-1, 0, n), rotated.narrow(-1, n, n)};
    const Tensor pairs = rotated.unflatten(-1, {n, 2});
    return {pairs.select(-1, 0), pairs.select(-1, 1)};
  };
  Tensor result = new_like(self, self.dtype(), self.device());
  const auto [x, y] = halves(widened(self));
  const auto [to_x, to_y] = halves(result);
  mytorch::copy_(to_x, inverse ? x * c + y * s : x * c - y * s);
  mytorch::copy_(to_y, inverse ? y * c - x * s : y * c + x * s);
  if (2 * n < width) {
    mytorch::copy_(result.narrow(-1, 2 * n, width - 2 * n), self.narrow(-1, 2 * n, width - 2 * n));
  }
  return result;
}

}  // namespace composite
}  // namespace mytorch
