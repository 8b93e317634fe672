// The factorization of symmetric and Hermitian matrices that are not definite.
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "core/types/broadcast.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/linalg_ldl_factor_ex.h"
#include "ops/check.h"
#include "ops/factorization/factorizations.h"
#include "ops/geometry.h"

namespace mytorch {

namespace shape {

Specs<3> linalg_ldl_factor_ex(const Tensor& self, bool, bool) {
  check_square(self, "self", "linalg_ldl_factor_ex");
  const Dims batch = geometry::leading_sizes(self, 2), rows = geometry::leading_sizes(self, 1);
  return {in_columns(self, to_dims(self.sizes())), like(self, rows, kInt32),
          like(self, batch, kInt32)};
}

TensorSpec linalg_ldl_solve(const Tensor& ld, const Tensor& pivots, const Tensor& b, bool) {
  const char* op = "linalg_ldl_solve";
  TensorSpec spec = solution_of(ld, "LD", b, true, op);
  check_type(pivots.dtype() == kInt32, op, "pivots is ", pivots.dtype(), ": it must be int32");
  check_shape(pivots.sizes() == as_list(geometry::leading_sizes(ld, 1)), op, "pivots has shape ",
              pivots.sizes(), ", which is not that of LD, ", ld.sizes(),
              ", without its last dimension");
  return spec;
}

}  // namespace shape

namespace composite {

Tensors<2> linalg_ldl_factor(const Tensor& self, bool hermitian) {
  auto [data, pivots, info] = mytorch::linalg_ldl_factor_ex(self, hermitian);
  Tensor checked = checked_result(data, info, "linalg_ldl_factor", [](int64_t order) {
    const std::string at = std::to_string(order - 1);
    return "a solve with the factorization would divide by 0: D[" + at + ", " + at + "] is 0";
  });
  return {std::move(checked), std::move(pivots)};
}

}  // namespace composite
}  // namespace mytorch
