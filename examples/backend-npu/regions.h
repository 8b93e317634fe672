// mt_backend::regions. The chip runs a part of a compiled function as one piece of queued work: its
// intermediates stay on the chip, as doubles, and no kernel but this one is launched.
#pragma once

#include "mytorch/backend/region.h"

namespace npu {

// Products of matrices, views, and pointwise operators of real floating-point tensors.
const mt_region_ops& region_ops();

}  // namespace npu
