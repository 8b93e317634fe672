// What kernels need of the SDK: mytorch/backend.h without loops on the host's threads, whose
// headers take as long to parse as the rest.
#pragma once

#include "mytorch/abi.h"              // IWYU pragma: export
#include "mytorch/backend/dtype.h"    // IWYU pragma: export
#include "mytorch/backend/error.h"    // IWYU pragma: export
#include "mytorch/backend/iterate.h"  // IWYU pragma: export
#include "mytorch/backend/kernel.h"   // IWYU pragma: export
#include "mytorch/backend/tensor.h"   // IWYU pragma: export
