// The median without NaN.
#include "mytorch/ops/nanmedian.h"

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/sort.h"
#include "mytorch/ops/zeros.h"
#include "ops/check.h"
#include "ops/geometry.h"

namespace mytorch::composite {

Tensors<2> nanmedian_dim(const Tensor& self, int64_t dim, bool keepdim) {
  const char* op = "nanmedian";
  const int64_t along = wrap_dim(dim, self.dim(), op);
  if (self.dim() == 0) return {self.clone(), mytorch::zeros({}, kInt64, self.device())};
  check_value(self.size(along) > 0, op, "dimension ", along, " of shape ", self.sizes(),
              " is empty: it has no median");
  const auto order =
      std::get<1>(mytorch::sort(self.detach(), true, along, false));  // NaN at the end
  Tensor rank = mytorch::full({}, (self.size(along) - 1) / 2, kInt64, self.device());
  if (self.is_floating_point()) {
    const Tensor count = mytorch::isnan(self.detach()).logical_not().sum({along}, true);
    rank = (count - 1).clamp_min(0).floor_divide(2);
  } else {
    Dims sizes = to_dims(self.sizes());
    sizes[along] = 1;
    rank = rank.expand(as_list(sizes));
  }
  const Tensor index = order.gather(along, rank);
  const Tensor values = self.gather(along, index);
  if (keepdim) return {values, index};
  return {values.squeeze(along), index.squeeze(along)};
}

Tensor nanmedian_all(const Tensor& self) {
  check_value(self.numel() > 0, "nanmedian", "shape ", self.sizes(), " is empty: it has no median");
  return std::get<0>(mytorch::nanmedian(self.reshape({-1}), 0));
}

}  // namespace mytorch::composite
