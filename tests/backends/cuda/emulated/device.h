// The emulated device (device.cpp).
#pragma once

namespace mytorch::cuda {

// The number of kernels compiled since the program began.
extern int texts_compiled;

}  // namespace mytorch::cuda
