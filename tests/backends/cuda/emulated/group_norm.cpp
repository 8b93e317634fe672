// Group normalization, compiled for the emulated device.
#include "tests/backends/cuda/emulated/language.h"
// Before the kernels.
#include "backends/cuda/normalization/group_norm.cu"
