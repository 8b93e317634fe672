// Everything for training loops, for programs; inside the project include the parts.
#pragma once

#include "mytorch/nn/training/checkpoint.h"    // IWYU pragma: export
#include "mytorch/nn/training/grad_scaler.h"   // IWYU pragma: export
#include "mytorch/nn/training/logs.h"          // IWYU pragma: export
#include "mytorch/nn/training/meters.h"        // IWYU pragma: export
#include "mytorch/nn/training/plot.h"          // IWYU pragma: export
#include "mytorch/nn/training/progress_bar.h"  // IWYU pragma: export
