// Umbrella header for optimizers; sources of mytorch include the individual headers.
#pragma once

#include "mytorch/nn/optim/adadelta.h"   // IWYU pragma: export
#include "mytorch/nn/optim/adafactor.h"  // IWYU pragma: export
#include "mytorch/nn/optim/adagrad.h"    // IWYU pragma: export
#include "mytorch/nn/optim/adam.h"       // IWYU pragma: export
#include "mytorch/nn/optim/adamax.h"     // IWYU pragma: export
#include "mytorch/nn/optim/asgd.h"       // IWYU pragma: export
#include "mytorch/nn/optim/averaging.h"  // IWYU pragma: export
#include "mytorch/nn/optim/by_name.h"    // IWYU pragma: export
#include "mytorch/nn/optim/clip.h"       // IWYU pragma: export
#include "mytorch/nn/optim/lbfgs.h"      // IWYU pragma: export
#include "mytorch/nn/optim/lion.h"       // IWYU pragma: export
#include "mytorch/nn/optim/muon.h"       // IWYU pragma: export
#include "mytorch/nn/optim/nadam.h"      // IWYU pragma: export
#include "mytorch/nn/optim/optimizer.h"  // IWYU pragma: export
#include "mytorch/nn/optim/radam.h"      // IWYU pragma: export
#include "mytorch/nn/optim/rmsprop.h"    // IWYU pragma: export
#include "mytorch/nn/optim/schedule.h"   // IWYU pragma: export
#include "mytorch/nn/optim/sgd.h"        // IWYU pragma: export

namespace mytorch {
namespace optim = nn::optim;
}  // namespace mytorch
