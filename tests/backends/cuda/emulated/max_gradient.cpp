// The gradient of max pooling, compiled for the emulated device.
#include "tests/backends/cuda/emulated/language.h"
// Before the kernels.
#include "backends/cuda/pooling/max_gradient.cu"
