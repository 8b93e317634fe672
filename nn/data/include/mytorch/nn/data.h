// Everything for loading data, for programs; inside the project include the parts.
#pragma once

#include "mytorch/nn/data/augment.h"       // IWYU pragma: export
#include "mytorch/nn/data/cifar.h"         // IWYU pragma: export
#include "mytorch/nn/data/collate.h"       // IWYU pragma: export
#include "mytorch/nn/data/combine.h"       // IWYU pragma: export
#include "mytorch/nn/data/data_loader.h"   // IWYU pragma: export
#include "mytorch/nn/data/dataset.h"       // IWYU pragma: export
#include "mytorch/nn/data/image_folder.h"  // IWYU pragma: export
#include "mytorch/nn/data/mnist.h"         // IWYU pragma: export
#include "mytorch/nn/data/sampler.h"       // IWYU pragma: export
#include "mytorch/nn/data/text_lines.h"    // IWYU pragma: export
#include "mytorch/nn/data/transforms.h"    // IWYU pragma: export
