// Layer and root-mean-square normalization, compiled for the emulated device.
#include "tests/backends/cuda/emulated/language.h"
// Before the kernels.
#include "backends/cuda/normalization/layer_norm.cu"
