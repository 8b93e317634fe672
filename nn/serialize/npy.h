// NumPy's .npy files: one array.
#pragma once

#include <string>

#include "mytorch/tensor.h"

namespace mytorch::nn {

// Reads the array of a file into host memory. Formats 1 to 3, in row-major order or Fortran's;
// numbers of this machine's byte order. Throws Error(kIo), naming the file and the reason, if the
// file is damaged or holds other types.
Tensor load_npy(const std::string& path);

// Writes a tensor of any device and strides. The file is replaced atomically. bfloat16 and float8,
// which NumPy does not have, throw Error(kUnsupported). Throws Error(kIo) if writing fails.
void save_npy(const std::string& path, const Tensor& tensor);

}  // namespace mytorch::nn
