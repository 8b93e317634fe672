// One batch of matrix products, c = alpha * a b + beta * self + bias, as the operators here put it.
#pragma once

#include <cstdint>

#include "mytorch/backend.h"

namespace mytorch::cuda {

struct Matrix {
  const void* data = nullptr;
  int64_t row = 0, col = 0, batch = 0;  // strides, in elements

  bool absent() const { return data == nullptr; }
};

struct Product {
  mt_dtype dtype;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  Matrix a, b, c;  // (m, k), (k, n), (m, n); c is written
  Matrix self;     // (m, n), with any strides; absent, or beta is 0: not read
  mt_scalar alpha{{.i = 1}, MT_SCALAR_INT, 0};
  mt_scalar beta{{.i = 0}, MT_SCALAR_INT, 0};
  int rank = 0;  // which of the library's proposals, the best guess first
  // gelu by tanh of the sum, of which a copy goes to `before`, contiguous, where that is not NULL.
  bool gelu = false;
  void* before = nullptr;

  Matrix at(const Matrix& matrix, int64_t offset) const {
    Matrix moved = matrix;
    moved.data = static_cast<const char*>(matrix.data) + offset * sdk::itemsize(dtype);
    return moved;
  }
};

// Throws sdk::Declined where rank > 0 and the library has fewer proposals.
void multiply(mt_ctx& ctx, const Product& product);

// cuBLASLt for the floating types, k > 0. False where it has nothing for this product, which for
// one with `gelu` is nearly everything but 16-bit types, a bias and contiguous results.
bool multiply_lt(mt_ctx& ctx, const Product& product);
// A tile at a time, any type, any strides, any k.
void multiply_tiles(mt_ctx& ctx, const Product& product);

}  // namespace mytorch::cuda
