// Umbrella header for neural networks: modules, losses, optimizers, data, serialization and
// training. For programs; sources of mytorch include the individual headers.
#pragma once

#include "mytorch/data.h"                 // IWYU pragma: export
#include "mytorch/nn/activation.h"        // IWYU pragma: export
#include "mytorch/nn/adaptive_softmax.h"  // IWYU pragma: export
#include "mytorch/nn/archive.h"           // IWYU pragma: export
#include "mytorch/nn/constants.h"         // IWYU pragma: export
#include "mytorch/nn/container.h"         // IWYU pragma: export
#include "mytorch/nn/conv.h"              // IWYU pragma: export
#include "mytorch/nn/data.h"              // IWYU pragma: export
#include "mytorch/nn/dropout.h"           // IWYU pragma: export
#include "mytorch/nn/functional.h"        // IWYU pragma: export
#include "mytorch/nn/generate.h"          // IWYU pragma: export
#include "mytorch/nn/impl.h"              // IWYU pragma: export
#include "mytorch/nn/init.h"              // IWYU pragma: export
#include "mytorch/nn/kv_cache.h"          // IWYU pragma: export
#include "mytorch/nn/linear.h"            // IWYU pragma: export
#include "mytorch/nn/loss.h"              // IWYU pragma: export
#include "mytorch/nn/module.h"            // IWYU pragma: export
#include "mytorch/nn/normalization.h"     // IWYU pragma: export
#include "mytorch/nn/optim.h"             // IWYU pragma: export
#include "mytorch/nn/padding.h"           // IWYU pragma: export
#include "mytorch/nn/parametrize.h"       // IWYU pragma: export
#include "mytorch/nn/pooling.h"           // IWYU pragma: export
#include "mytorch/nn/recurrent.h"         // IWYU pragma: export
#include "mytorch/nn/rotary.h"            // IWYU pragma: export
#include "mytorch/nn/serialize.h"         // IWYU pragma: export
#include "mytorch/nn/summary.h"           // IWYU pragma: export
#include "mytorch/nn/training.h"          // IWYU pragma: export
#include "mytorch/nn/transformer.h"       // IWYU pragma: export
#include "mytorch/nn/unpooling.h"         // IWYU pragma: export
#include "mytorch/nn/upsampling.h"        // IWYU pragma: export
#include "mytorch/nn/utils.h"             // IWYU pragma: export
