// Everything that a kernel author needs, in C++20 on top of mytorch/abi.h. Header-only: a backend
// links nothing of mytorch. Random numbers are separate, in mytorch/backend/philox.h.
#pragma once

#include "mytorch/abi.h"               // IWYU pragma: export
#include "mytorch/backend/dtype.h"     // IWYU pragma: export
#include "mytorch/backend/error.h"     // IWYU pragma: export
#include "mytorch/backend/iterate.h"   // IWYU pragma: export
#include "mytorch/backend/kernel.h"    // IWYU pragma: export
#include "mytorch/backend/parallel.h"  // IWYU pragma: export
#include "mytorch/backend/sizes.h"     // IWYU pragma: export
#include "mytorch/backend/tensor.h"    // IWYU pragma: export
#include "mytorch/backend/windows.h"   // IWYU pragma: export
