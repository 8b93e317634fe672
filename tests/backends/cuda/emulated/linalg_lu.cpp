// Kernels of linear algebra, compiled for the emulated device.
#include "tests/backends/cuda/emulated/language.h"
// Before the kernels.
#include "backends/cuda/factorization/lu.cu"
