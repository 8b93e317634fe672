// Umbrella header for model code: tensors, operators, autograd, nn, optimizers and data.
#pragma once

#include "mytorch/autocast.h"
#include "mytorch/autograd.h"
#include "mytorch/backends.h"
#include "mytorch/check.h"
#include "mytorch/cuda.h"
#include "mytorch/fft.h"
#include "mytorch/nn.h"
#include "mytorch/ops.h"
#include "mytorch/tensor.h"
#include "mytorch/threads.h"
#include "mytorch/version.h"
