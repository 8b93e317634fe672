// A batch of matrix products, c = alpha * a b + beta * self, in terms of the operators.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cuda/runtime/sdk.h"

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
  Matrix self;     // (m, n), any strides; not read if absent or if beta is 0
  mt_scalar alpha{{.i = 1}, MT_SCALAR_INT, 0};
  mt_scalar beta{{.i = 0}, MT_SCALAR_INT, 0};
  bool wide = false;  // `c` and `self` are float32, and `a` and `b` of a 16-bit type
  int rank = 0;       // index among the library's proposals, best first
  // Applies the tanh gelu to the sum. If `before` is not NULL, the sum is also stored there,
  // contiguous.
  bool gelu = false;
  void* before = nullptr;

  Matrix at(const Matrix& matrix, int64_t offset) const {
    Matrix moved = matrix;
    moved.data = static_cast<const char*>(matrix.data) + offset * sdk::itemsize(dtype);
    return moved;
  }
};

// Throws sdk::Declined if rank > 0 and the library has fewer proposals, or if it has none for a
// `wide` product, whose `c` and `self` must have contiguous rows.
void multiply(mt_ctx& ctx, const Product& product);

// Runs cuBLASLt, for floating-point types and k > 0. Returns false if it has no algorithm for this
// product. With `gelu` it has nearly none except for 16-bit types with a bias and contiguous
// results.
bool multiply_lt(mt_ctx& ctx, const Product& product);
// Registers the gradient of gelu after a linear layer.
void register_linear_gelu_backward(std::vector<mt_kernel_entry>& kernels);
// Runs a tiled kernel for any type, any strides and any k.
void multiply_tiles(mt_ctx& ctx, const Product& product);

}  // namespace mytorch::cuda
