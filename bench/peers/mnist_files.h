// MNIST's IDX files, plain or gzipped, as bytes.
//
// Format: http://yann.lecun.com/exdb/mnist/ -- two zero bytes, a type (8: unsigned byte), the
// number of dimensions, each dimension as a big-endian 32-bit integer, then the elements in
// row-major order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct IdxArray {
  std::vector<int64_t> shape;
  std::vector<uint8_t> data;
};

// Reads `directory/name.gz` or, if that file does not exist, `directory/name`. Throws
// std::runtime_error, naming the file, if it is missing, truncated, longer than its header says, or
// not an array of bytes.
IdxArray read_idx(const std::string& directory, const std::string& name);
