// The kernel of linear_gelu_backward, compiled for the emulated device.
#include "tests/backends/cuda/emulated/language.h"
// Before the kernels.
#include "backends/cuda/matrix/linear_gelu_backward.cu"
