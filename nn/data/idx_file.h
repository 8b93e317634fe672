// The IDX format of the MNIST files.
#pragma once

#include <string>

#include "mytorch/tensor.h"

namespace mytorch::nn::data {

// Reads an array of unsigned bytes with `ndim` dimensions: two zero bytes, the element type (8),
// the number of dimensions, each size as a big-endian 32-bit integer, and the elements in row-major
// order. The file may be gzipped, whatever its name. Throws Error(kIo), naming the file, unless it
// contains exactly that. Never allocates more memory than the file can fill.
Tensor read_idx(const std::string& path, int ndim);

}  // namespace mytorch::nn::data
