// Kernels of batch_norm, compiled for the emulated device.
#include "tests/backends/cuda/emulated/language.h"
// Before the kernels.
#include "backends/cuda/normalization/batch_norm.cu"
