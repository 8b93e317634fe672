// The emulated device (device.cpp).
#pragma once

namespace mytorch::cuda {

// Kernels made since the program began.
extern int texts_compiled;

}  // namespace mytorch::cuda
