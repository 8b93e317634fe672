// The errors of as_mdspan.
#include "mytorch/mdspan.h"

#include "core/types/errors.h"

namespace mytorch::detail {

void fail_mdspan(const Tensor& tensor, size_t dim, const char* problem) {
  fail(ErrorCode::kShape, "[as_mdspan] dimension ", dim, " of shape ", shape_str(tensor.sizes()),
       " and strides ", shape_str(tensor.strides()), ": ", problem);
}

}  // namespace mytorch::detail
